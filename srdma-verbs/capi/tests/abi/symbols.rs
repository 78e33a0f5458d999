//! Symbols and their version nodes, and that programs of the distribution find all of theirs.

use crate::common::{Folder, library, output};
use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

/// Symbols that a library defines, as `name@NODE`.
fn defined(library: &Path) -> BTreeSet<String> {
    let table = output(
        Command::new("readelf")
            .args(["-W", "--dyn-syms"])
            .arg(library),
    );
    let symbols = table.lines().filter_map(|line| {
        let columns: Vec<&str> = line.split_whitespace().collect();
        let [_, _, _, _, "GLOBAL", "DEFAULT", section, name, ..] = *columns else {
            return None;
        };
        let (name, node) = name.split_once('@')?;
        let node = node.trim_start_matches('@');
        (section != "UND" && section != "ABS").then(|| format!("{name}@{node}"))
    });
    symbols.collect()
}

/// Where Debian keeps a library.
fn system(name: &str) -> Option<std::path::PathBuf> {
    let folders = [
        "/usr/lib/x86_64-linux-gnu",
        "/usr/lib/aarch64-linux-gnu",
        "/usr/lib64",
    ];
    let mut files = folders.iter().map(|folder| Path::new(folder).join(name));
    files.find(|file| file.is_file())
}

#[test]
fn every_symbol_of_the_system_s_libraries_is_there_in_the_same_node() {
    let ours = defined(&library());
    let mut compared = 0;
    for name in ["libibverbs.so.1", "librdmacm.so.1"] {
        let Some(file) = system(name) else { continue };
        let theirs = defined(&file);
        // Node 1.0 as node 1.1 replaced it, for programs from before 2008.
        let old = |symbol: &&String| {
            let (name, node) = symbol.split_once('@').unwrap();
            !(node == "IBVERBS_1.0" && theirs.contains(&format!("{name}@IBVERBS_1.1")))
        };
        let missing: Vec<_> = theirs
            .iter()
            .filter(old)
            .filter(|s| !ours.contains(*s))
            .collect();
        assert!(missing.is_empty(), "{name}: {missing:?}");
        compared += theirs.len();
    }
    eprintln!("compared with {compared} symbols of the system");
}

#[test]
fn nodes_reach_as_far_as_the_newest_release() {
    let ours = defined(&library());
    for symbol in [
        "ibv_copy_qp_attr_from_kern@IBVERBS_1.0",
        "ibv_open_device@IBVERBS_1.1",
        "ibv_qp_to_qp_ex@IBVERBS_1.6",
        "ibv_reg_mr_iova2@IBVERBS_1.8",
        "ibv_query_qp_data_in_order@IBVERBS_1.14",
        "ibv_reg_mr_ex@IBVERBS_1.15",
        "ibv_query_port_speed@IBVERBS_1.16",
        "ibv_alloc_buf@IBVERBS_1.17",
        "ibv_create_comp_cntr@IBVERBS_1.18",
        "verbs_register_driver_34@IBVERBS_PRIVATE_34",
        "verbs_register_driver_57@IBVERBS_PRIVATE_57",
        "verbs_register_driver_59@IBVERBS_PRIVATE_59",
        "verbs_register_driver_64@IBVERBS_PRIVATE_64",
        "verbs_register_driver_65@IBVERBS_PRIVATE_65",
        "verbs_allow_disassociate_destroy@IBVERBS_PRIVATE_65",
        "rdma_connect@RDMACM_1.0",
        "rdma_write_cm_event@RDMACM_1.4",
        "repoll_ctl@RDMACM_1.5",
    ] {
        assert!(ours.contains(symbol), "{symbol}");
    }
}

#[test]
fn nothing_is_exported_beside_the_nodes() {
    let table = output(
        Command::new("readelf")
            .args(["-W", "--dyn-syms"])
            .arg(library()),
    );
    let bare = table.lines().filter(|line| {
        let global = line.contains(" GLOBAL ") || line.contains(" WEAK ");
        global && !line.contains(" UND ") && !line.contains(" ABS ") && !line.contains('@')
    });
    assert_eq!(bare.collect::<Vec<_>>(), Vec::<&str>::new());
}

#[test]
fn programs_of_the_distribution_find_every_symbol() {
    let folder = Folder::new("ldd");
    for program in [
        "/usr/bin/ibv_devices",
        "/usr/bin/ibv_rc_pingpong",
        "/usr/bin/ib_send_bw",
        "/usr/bin/ib_write_lat",
        "/usr/bin/ib_atomic_bw",
        "/usr/bin/qperf",
    ] {
        if !Path::new(program).exists() {
            eprintln!("not checked: {program} is not installed");
            continue;
        }
        // Without LD_PRELOAD: the loader resolves by file name then.
        let mut command = Command::new("ldd");
        command
            .arg("-r")
            .arg(program)
            .env("LD_LIBRARY_PATH", folder.path());
        let found = command.env("LD_BIND_NOW", "1").output().unwrap();
        let text = String::from_utf8_lossy(&found.stdout) + String::from_utf8_lossy(&found.stderr);
        let wrong = ["undefined", "not found", "no version"];
        assert!(
            !wrong.iter().any(|word| text.contains(word)),
            "{program}: {text}"
        );
        // One name of two is shown: both are the same file.
        let ours = folder.path().to_string_lossy();
        assert!(text.contains(&*ours), "{program}: {text}");
    }
}

#[test]
fn programs_list_the_device() {
    let folder = Folder::new("list");
    if !Path::new("/usr/bin/ibv_devices").exists() {
        eprintln!("not checked: ibv_devices is not installed");
        return;
    }
    let mut command = folder.command("/usr/bin/ibv_devices");
    let text = output(command.env("SRDMA_DEVICES", "mine=127.0.0.1"));
    assert!(text.contains("mine"), "{text}");
}
