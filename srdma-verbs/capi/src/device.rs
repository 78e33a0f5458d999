//! The list of devices, as C sees it.
//!
//! A device keeps its address for as long as the process lives, so programs may compare and keep
//! pointers across lists. The number of devices is that of interfaces, so nothing grows.

use crate::ffi;
use crate::handle::{Errno, Kind, Outcome, Tag, borrow, lock, object};
use crate::types::{ibv_device, verbs_device};
use core::ffi::{c_char, c_int};
use core::ptr;
use srdma_verbs::DeviceInfo;
use std::sync::Mutex;

/// `IBV_NODE_CA`.
const NODE_CA: c_int = 1;

/// A device.
#[repr(C)]
pub(crate) struct Device {
    c: verbs_device,
    tag: Tag,
    pub(crate) info: DeviceInfo,
}

object!(Device, Device);

/// Every device that was ever listed.
static KNOWN: Mutex<Vec<&'static Device>> = Mutex::new(Vec::new());

impl Device {
    fn new(info: DeviceInfo, index: usize) -> Self {
        let mut device = ibv_device {
            _ops: [0; 2],
            node_type: NODE_CA,
            transport_type: 0,
            name: [0; 64],
            dev_name: [0; 64],
            dev_path: [0; 256],
            ibdev_path: [0; 256],
        };
        put(&mut device.name, &info.name);
        put(&mut device.dev_name, &format!("uverbs{index}"));
        let class = crate::sysfs::CLASS;
        put(
            &mut device.dev_path,
            &format!("{class}/infiniband_verbs/uverbs{index}"),
        );
        put(
            &mut device.ibdev_path,
            &format!("{class}/infiniband/{}", info.name),
        );
        let c = verbs_device {
            device,
            ops: 0,
            refcount: 1,
            entry: [0; 2],
            sysfs: 0,
            core_support: 0,
        };
        Self {
            c,
            tag: Tag::new(Kind::Device),
            info,
        }
    }

    /// What C calls the device.
    pub(crate) fn c(&'static self) -> *mut ibv_device {
        ptr::from_ref(self).cast_mut().cast()
    }
}

/// Copies a name into a field of C, cut to fit, with a zero at the end.
pub(crate) fn put<const N: usize>(field: &mut [c_char; N], text: &str) {
    let places = field.iter_mut().take(N - 1);
    for (place, byte) in places.zip(text.bytes()) {
        *place = c_char::from_ne_bytes([byte]);
    }
}

/// The devices of this machine, each at its lasting address.
pub(crate) fn all() -> Outcome<Vec<&'static Device>> {
    let infos = srdma_verbs::offered_devices()?;
    let mut known = lock(&KNOWN);
    let mut devices = Vec::new();
    for info in infos {
        let found = known.iter().find(|device| device.info == info);
        let device = match found {
            Some(device) => *device,
            None => {
                let device = &*Box::leak(Box::new(Device::new(info, known.len())));
                known.push(device);
                device
            }
        };
        devices.push(device);
    }
    Ok(devices)
}

/// `ibv_get_device_list`
pub(crate) extern "C" fn get_device_list(count: Option<&mut c_int>) -> *mut *mut ibv_device {
    let devices = match all() {
        Ok(devices) => devices,
        Err(Errno(code)) => {
            ffi::set_errno(code);
            return ptr::null_mut();
        }
    };
    if let Some(count) = count {
        *count = c_int::try_from(devices.len()).unwrap_or(0);
    }
    let pointers = devices.into_iter().map(Device::c);
    ffi::own_list(pointers.collect())
}

/// `ibv_free_device_list`
pub(crate) extern "C" fn free_device_list(list: *mut *mut ibv_device) {
    ffi::release_list(list);
}

/// `ibv_get_device_name`
pub(crate) extern "C" fn get_device_name(device: Option<&Device>) -> *const c_char {
    match borrow(device) {
        Ok(device) => device.c.device.name.as_ptr(),
        Err(_) => ptr::null(),
    }
}

/// `ibv_get_device_guid`: in network byte order.
pub(crate) extern "C" fn get_device_guid(device: Option<&Device>) -> u64 {
    borrow(device).map_or(0, |device| device.info.guid().to_be())
}

/// `ibv_get_device_index`: the kernel has none for us.
pub(crate) extern "C" fn get_device_index(_device: Option<&Device>) -> c_int {
    -1
}
