//! Asks a C compiler whether the structures of the installed `<infiniband/verbs.h>` are ours.

use super::*;
use std::fmt::Write as _;
use std::path::Path;
use std::process::Command;

const HEADER: &str = "/usr/include/infiniband/verbs.h";

/// Lines of a C program, and the line that each should print.
#[derive(Default)]
struct Probe {
    program: String,
    expected: Vec<String>,
}

impl Probe {
    fn add<T: Layout>(&mut self) {
        self.line(T::NAME, "", "sizeof(struct ", T::SIZE);
        for (field, offset) in T::FIELDS {
            let field = field.trim_end_matches('_');
            self.line(T::NAME, field, "offsetof(struct ", *offset);
        }
    }

    fn line(&mut self, name: &str, field: &str, what: &str, value: usize) {
        let (comma, dot) = if field.is_empty() {
            ("", "")
        } else {
            (", ", ".")
        };
        let _ = writeln!(
            self.program,
            "printf(\"{name}{dot}{field} %zu\\n\", {what}{name}{comma}{field}));"
        );
        self.expected.push(format!("{name}{dot}{field} {value}"));
    }
}

macro_rules! probe {
    ($($name:ty),* $(,)?) => {{
        let mut probe = Probe::default();
        $( probe.add::<$name>(); )*
        probe
    }};
}

/// Fields of a structure that programs reach by their distance from `$from`.
macro_rules! distances {
    ($probe:ident, $name:ident, $from:expr, $c_from:literal, $($field:ident),* $(,)?) => { $(
        let _ = writeln!(
            $probe.program,
            concat!(
                "printf(\"", stringify!($name), ".", stringify!($field), " %zd\\n\", ",
                "(ssize_t)offsetof(struct ", stringify!($name), ", ", stringify!($field),
                ") - (ssize_t)", $c_from, ");"
            )
        );
        let offset = core::mem::offset_of!($name, $field).cast_signed();
        let distance = offset - $from.cast_signed();
        let (name, field) = (stringify!($name), stringify!($field));
        $probe.expected.push(format!("{name}.{field} {distance}"));
    )* };
}

#[rustfmt::skip]
fn structures() -> Probe {
    probe![
        ibv_xrcd, ibv_dm, ibv_xrcd_init_attr, ibv_qp_open_attr, ibv_alloc_dm_attr,
        ibv_device, ibv_context_ops, ibv_context, ibv_pd, ibv_td, ibv_mr, ibv_mw, ibv_ah,
        ibv_comp_channel, ibv_cq_ex, ibv_srq, ibv_qp, ibv_sge, ibv_send_wr, ibv_recv_wr, ibv_wc,
        ibv_data_buf, ibv_mw_bind_info, ibv_mw_bind, ibv_grh, ibv_device_attr, ibv_odp_caps,
        ibv_tso_caps, ibv_rss_caps, ibv_cq_moderation_caps, ibv_device_attr_ex, ibv_port_attr,
        ibv_gid_entry, ibv_global_route, ibv_ah_attr, ibv_qp_cap, ibv_qp_attr, ibv_qp_init_attr,
        ibv_qp_init_attr_ex, ibv_srq_attr, ibv_srq_init_attr, ibv_srq_init_attr_ex,
        ibv_cq_init_attr_ex, ibv_poll_cq_attr, ibv_moderate_cq, ibv_modify_cq_attr,
        ibv_td_init_attr, ibv_parent_domain_init_attr, ibv_values_ex, ibv_ece, ibv_async_event,
    ]
}

/// Structures that grew after the oldest header we are tested with.
#[rustfmt::skip]
fn tables(probe: &mut Probe) {
    distances!(
        probe, verbs_context, size_of::<verbs_context>(),
        "offsetof(struct verbs_context, context)",
        query_port, advise_mr, alloc_null_mr, read_counters, attach_counters_point_flow,
        create_counters, destroy_counters, reg_dm_mr, alloc_dm, free_dm, modify_flow_action_esp,
        destroy_flow_action, create_flow_action_esp, modify_qp_rate_limit, alloc_parent_domain,
        dealloc_td, alloc_td, modify_cq, post_srq_ops, destroy_rwq_ind_table, create_rwq_ind_table,
        destroy_wq, modify_wq, create_wq, query_rt_values, create_cq_ex, query_device_ex,
        ibv_destroy_flow, ibv_create_flow, open_qp, create_qp_ex, get_srq_num, create_srq_ex,
        open_xrcd, close_xrcd, sz,
    );
    distances!(
        probe, ibv_qp_ex, 0_usize, "0",
        qp_base, comp_mask, wr_id, wr_flags, wr_atomic_cmp_swp, wr_atomic_fetch_add, wr_bind_mw,
        wr_local_inv, wr_rdma_read, wr_rdma_write, wr_rdma_write_imm, wr_send, wr_send_imm,
        wr_send_inv, wr_send_tso, wr_set_ud_addr, wr_set_xrc_srqn, wr_set_inline_data,
        wr_set_inline_data_list, wr_set_sge, wr_set_sge_list, wr_start, wr_complete, wr_abort,
        wr_atomic_write,
    );
}

#[test]
fn a_c_compiler_sees_the_same_structures() {
    if !Path::new(HEADER).exists() {
        eprintln!("not checked: {HEADER} is not installed");
        return;
    }
    let mut probe = structures();
    tables(&mut probe);
    assert!(probe.expected.len() > 400, "{}", probe.expected.len());
    assert_eq!(
        run(&probe.program).lines().collect::<Vec<_>>(),
        probe.expected
    );
}

/// What a C program with this body prints.
fn run(body: &str) -> String {
    let folder = std::env::temp_dir().join(format!("srdma-probe-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let (source, binary) = (folder.join("probe.c"), folder.join("probe"));
    let head = "#include <infiniband/verbs.h>\n#include <stdio.h>\nint main(void) {\n";
    std::fs::write(&source, format!("{head}{body}return 0; }}\n")).unwrap();
    let compiled = Command::new("cc")
        .arg(&source)
        .arg("-o")
        .arg(&binary)
        .output()
        .unwrap();
    assert!(
        compiled.status.success(),
        "{}",
        String::from_utf8_lossy(&compiled.stderr)
    );
    let output = Command::new(&binary).output().unwrap();
    std::fs::remove_dir_all(&folder).unwrap();
    String::from_utf8(output.stdout).unwrap()
}
