//! Packets that others made: test vectors and captures of Linux rxe.
//!
//! Each one goes through our receive path as a socket would hand it over, without its IP header:
//! it must parse, its ICRC must check, the solver must find the identification that stood in the
//! header, and what we write again must be the same bytes.

#![cfg(test)]

use std::net::IpAddr;
use std::path::{Path, PathBuf};

use etherparse::{NetSlice, SlicedPacket, TransportSlice};
use serde::Deserialize;
use srdma_core::num::{Msn, Pkey, Psn, Qkey, Qpn, Rkey};
use srdma_core::time::rnr_timer_ns;
use srdma_core::wire::icrc::{IcrcCheck, IcrcFlow, verify};
use srdma_core::wire::{
    Aeth, AtomicEth, Bth, Deth, Emit, Feth, FlowTuple, ImmDt, Opcode, Packet, Pretty, ROCE_PORT,
    Reth, Syndrome,
};
use srdma_tests::pcap;

fn data() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("data")
}

/// A datagram and what stood in its headers.
struct Datagram {
    flow: FlowTuple,
    id: u16,
    df: bool,
    payload: Vec<u8>,
}

/// Takes IP and UDP off; `None` for what is no RoCEv2.
fn take_off(sliced: &SlicedPacket<'_>) -> Option<Datagram> {
    let Some(TransportSlice::Udp(udp)) = &sliced.transport else {
        return None;
    };
    let (source, target, id, df): (IpAddr, IpAddr, u16, bool) = match sliced.net.as_ref()? {
        NetSlice::Ipv4(ip) => {
            let ip = ip.header();
            let (source, target) = (ip.source_addr().into(), ip.destination_addr().into());
            (source, target, ip.identification(), ip.dont_fragment())
        }
        NetSlice::Ipv6(ip) => {
            let ip = ip.header();
            (
                ip.source_addr().into(),
                ip.destination_addr().into(),
                0,
                true,
            )
        }
        _ => return None,
    };
    (udp.destination_port() == ROCE_PORT).then(|| Datagram {
        flow: FlowTuple::to_roce(source, udp.source_port(), target),
        id,
        df,
        payload: udp.payload().to_vec(),
    })
}

/// Writes a packet again, from the headers we read and the payload, and signs it.
fn again(packet: &Packet<'_>, emit: &Emit, flow: &FlowTuple, id: u16) -> Vec<u8> {
    let mut bytes = vec![0; emit.len()];
    emit.write(&mut bytes);
    let (bth, ext) = bytes.split_first_chunk().unwrap();
    let mut icrc = IcrcFlow::new(flow).start(packet.bytes().len(), id, bth);
    icrc.bytes(ext);
    icrc.bytes(packet.payload());
    bytes.extend(packet.payload());
    let pad = vec![0; usize::from(emit.bth.pad)];
    icrc.bytes(&pad);
    bytes.extend(&pad);
    bytes.extend(icrc.finish());
    bytes
}

#[derive(Deserialize)]
struct Vectors {
    vectors: Vec<Vector>,
}

#[derive(Deserialize)]
struct Vector {
    name: String,
    src: IpAddr,
    dst: IpAddr,
    udp_sport: u16,
    udp_dport: u16,
    #[serde(default)]
    ip_id: u16,
    #[serde(default = "yes")]
    df: bool,
    fields: Fields,
    payload_hex: String,
    pad: u8,
    valid: bool,
    icrc_wire_hex: String,
    packet_l3_hex: String,
    udp_payload_hex: String,
    solved_ip_id: Option<u16>,
}

fn yes() -> bool {
    true
}

#[derive(Deserialize)]
struct Fields {
    opcode_val: u8,
    dest_qp: u32,
    psn: u32,
    ack_req: Option<u8>,
    #[serde(default)]
    se: u8,
    mig: Option<u8>,
    pkey: Option<u16>,
    #[serde(default)]
    becn: u8,
    #[serde(default)]
    fecn: u8,
    imm: Option<u32>,
    va: Option<u64>,
    rkey: Option<u32>,
    dma_len: Option<u32>,
    syndrome: Option<u8>,
    msn: Option<u32>,
    rnr_us: Option<u64>,
    swap_add: Option<u64>,
    compare: Option<u64>,
    orig: Option<u64>,
    ieth_rkey: Option<u32>,
    plt: Option<u8>,
    sel: Option<u8>,
    qkey: Option<u32>,
    src_qp: Option<u32>,
    xrc_srqn: Option<u32>,
}

impl Vector {
    /// The headers that the vector's fields describe. `packet` fills in what they leave open.
    fn headers(&self, packet: &Packet<'_>) -> Emit {
        let (f, open) = (&self.fields, packet.bth());
        let place = f.va.zip(f.rkey);
        Emit {
            bth: Bth {
                opcode: Opcode(f.opcode_val),
                solicited: f.se != 0,
                migrated: f.mig.map_or(open.migrated, |mig| mig != 0),
                ack_req: f.ack_req.map_or(open.ack_req, |ack| ack != 0),
                pad: self.pad,
                pkey: f.pkey.map_or(Pkey::DEFAULT, Pkey),
                dest: Qpn::new(f.dest_qp),
                place: 0,
                psn: Psn::new(f.psn),
                becn: f.becn != 0,
                fecn: f.fecn != 0,
            },
            xrceth: f.xrc_srqn,
            deth: f.qkey.zip(f.src_qp).map(|(qkey, source)| Deth {
                qkey: Qkey(qkey),
                source: Qpn::new(source),
            }),
            reth: place.zip(f.dma_len).map(|((addr, rkey), len)| Reth {
                addr,
                rkey: Rkey(rkey),
                len,
            }),
            atomic: place
                .zip(f.swap_add)
                .map(|((addr, rkey), swap_add)| AtomicEth {
                    addr,
                    rkey: Rkey(rkey),
                    swap_add,
                    compare: f.compare.unwrap_or_default(),
                }),
            aeth: f.syndrome.zip(f.msn).map(|(syndrome, msn)| Aeth {
                syndrome: Syndrome::from_byte(syndrome),
                msn: Msn::new(msn),
            }),
            atomic_ack: f.orig,
            imm: f.imm.map(|imm| ImmDt(imm.to_be_bytes())),
            ieth: f.ieth_rkey.map(Rkey),
            feth: f.plt.zip(f.sel).map(|(placement, selectivity)| Feth {
                placement,
                selectivity,
            }),
            rider: None,
        }
    }

    /// What checking the ICRC must say.
    fn expected(&self) -> IcrcCheck {
        match (self.valid, self.df) {
            (false, _) => IcrcCheck::Bad,
            (true, true) => {
                assert_eq!(self.solved_ip_id.unwrap_or(0), self.ip_id, "{}", self.name);
                IcrcCheck::Good { ip_id: self.ip_id }
            }
            (true, false) => IcrcCheck::DfClear { ip_id: self.ip_id },
        }
    }
}

fn unhex(hex: &str) -> Vec<u8> {
    let digit = |at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap();
    (0..hex.len()).step_by(2).map(digit).collect()
}

#[test]
fn vectors() {
    // proves: roce-25
    // proves: roce-26
    // proves: roce-34
    // proves: roce-35
    let text = std::fs::read_to_string(data().join("rocev2_vectors.json")).unwrap();
    let vectors = serde_json::from_str::<Vectors>(&text).unwrap().vectors;
    assert_eq!(vectors.len(), 36);
    for v in &vectors {
        let name = &v.name;
        let l3 = unhex(&v.packet_l3_hex);
        let datagram = take_off(&SlicedPacket::from_ip(&l3).unwrap()).unwrap();
        assert_eq!(datagram.payload, unhex(&v.udp_payload_hex), "{name}");
        let flow = datagram.flow;
        assert_eq!((flow.source, flow.target), (v.src, v.dst), "{name}");
        let ports = (flow.source_port, flow.target_port);
        assert_eq!(ports, (v.udp_sport, v.udp_dport), "{name}");
        assert_eq!((datagram.id, datagram.df), (v.ip_id, v.df), "{name}");

        let packet = Packet::parse(&datagram.payload).unwrap();
        let headers = v.headers(&packet);
        assert_eq!(packet.headers(), headers, "{name}: {packet}");
        assert_eq!(packet.payload(), unhex(&v.payload_hex), "{name}: {packet}");
        assert_eq!(
            packet.icrc().to_le_bytes(),
            unhex(&v.icrc_wire_hex)[..],
            "{name}"
        );
        if let (Some(us), Some(aeth)) = (v.fields.rnr_us, packet.aeth()) {
            let Syndrome::RnrNak { timer } = aeth.syndrome else {
                panic!("{name}: {aeth}")
            };
            assert_eq!(rnr_timer_ns(timer), us * 1000, "{name}");
        }
        for hint in [0, 1, 63] {
            let check = verify(&IcrcFlow::new(&flow), packet.bytes(), hint);
            assert_eq!(check, v.expected(), "{name}: {packet}");
        }
        if v.valid && v.df {
            assert_eq!(
                again(&packet, &headers, &flow, v.ip_id),
                packet.bytes(),
                "{name}"
            );
        } else {
            let (written, end) = (
                again(&packet, &headers, &flow, v.ip_id),
                packet.bytes().len() - 4,
            );
            assert_eq!(written[..end], packet.bytes()[..end], "{name}");
        }
    }
}

/// Runs every packet of a capture through the receive path; returns how many there were.
fn check_capture(file: &Path) -> usize {
    let bytes = std::fs::read(file).unwrap();
    let capture = pcap::read(&bytes).unwrap();
    assert_eq!(capture.link, pcap::ETHERNET);
    let mut packets = 0;
    for (n, frame) in capture.frames.iter().enumerate() {
        assert_eq!(usize::try_from(frame.original).unwrap(), frame.bytes.len());
        let sliced = SlicedPacket::from_ethernet(frame.bytes).unwrap();
        let Some(Datagram {
            flow,
            id,
            df,
            payload,
        }) = take_off(&sliced)
        else {
            continue;
        };
        let at = || format!("{} frame {n}: {}", file.display(), Pretty(&payload));
        let packet = Packet::parse(&payload).unwrap_or_else(|e| panic!("{}: {e}", at()));
        assert!(df, "{}", at());
        for hint in [0, 5, id] {
            let check = verify(&IcrcFlow::new(&flow), &payload, hint);
            assert_eq!(check, IcrcCheck::Good { ip_id: id }, "{}", at());
        }
        assert_eq!(
            again(&packet, &packet.headers(), &flow, id),
            payload,
            "{}",
            at()
        );
        packets += 1;
    }
    packets
}

#[test]
fn captures_of_rxe() {
    // proves: roce-25
    // proves: roce-34
    let mut files: Vec<PathBuf> = std::fs::read_dir(data().join("rxe"))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| {
            path.extension()
                .is_some_and(|extension| extension == "pcap")
        })
        .collect();
    files.sort();
    let packets: usize = files.iter().map(|file| check_capture(file)).sum();
    assert_eq!((files.len(), packets), (48, 1024));
}
