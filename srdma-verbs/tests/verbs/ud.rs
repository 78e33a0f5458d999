//! Datagrams: header area, queue keys, multicast.

use crate::common::*;
use srdma_verbs::{Access, DeviceConfig, Path, Qkey, QpType, Qpn, Reason, WcFlags, WcOpcode, WrId};

const KEY: Qkey = Qkey(0x0123_4567);

#[test]
fn a_datagram_brings_its_header_and_its_source() {
    // proves: roce-122
    // proves: roce-123
    let (a, b) = sides();
    let qa = a.qp(QpType::Ud).build().unwrap().activate_ud(KEY).unwrap();
    let qb = b.qp(QpType::Ud).build().unwrap().activate_ud(KEY).unwrap();
    let target = b.mr(40 + 100);
    let mut batch = qb.post_recv();
    batch.recv(WrId(1)).local(target.sge(..));
    batch.recv(WrId(2)).local(target.sge(..));
    batch.ring().unwrap();
    let (from, to) = (
        a.ctx.query_gid(1, 0).unwrap(),
        b.ctx.query_gid(1, 0).unwrap(),
    );
    let ah = a.pd.create_ah(Path::new(to, 0)).unwrap();
    let mut batch = qa.post_send();
    batch
        .send_imm(WrId(3), 5)
        .inline(b"datagram")
        .to(&ah, qb.qp_num(), KEY)
        .signaled();
    batch.ring().unwrap();
    assert_eq!(done(&a.cq).wr_id(), WrId(3));
    let wc = done(&b.cq);
    assert_eq!(
        (wc.opcode(), wc.byte_len(), wc.imm()),
        (WcOpcode::Recv, 48, Some(5))
    );
    assert_eq!(wc.src_qp(), Some(qa.qp_num()));
    assert!(wc.flags().contains(WcFlags::GRH) && wc.is_ipv4());
    let area = target.to_vec(0, 48).unwrap();
    assert_eq!(area[..20], [0; 20]);
    assert_eq!((area[20], area[29]), (0x45, 17), "an IPv4 header for UDP");
    assert_eq!(area[32..36], from.0[12..]);
    assert_eq!(area[36..40], to.0[12..]);
    assert_eq!(&area[40..], b"datagram");
    let sum = area[20..40].chunks(2).fold(0u32, |sum, pair| {
        sum + u32::from(u16::from_be_bytes([pair[0], pair[1]]))
    });
    assert_eq!(
        (sum & 0xffff) + (sum >> 16),
        0xffff,
        "the header's checksum is right"
    );

    let header: [u8; 40] = area[..40].try_into().unwrap();
    assert_eq!(Path::reply_to(&header, 0), Some(Path::new(from, 0)));
    assert_eq!(Path::reply_to(&[0; 40], 0), None);

    // A wrong queue key is dropped, and counted.
    let mut batch = qa.post_send();
    batch
        .send(WrId(4))
        .inline(b"no")
        .to(&ah, qb.qp_num(), Qkey(1))
        .signaled();
    batch
        .send(WrId(5))
        .inline(b"no")
        .to(&ah, Qpn::new(qb.qp_num().value() ^ 1), KEY)
        .signaled();
    batch
        .send(WrId(6))
        .inline(b"yes")
        .to(&ah, qb.qp_num(), KEY)
        .signaled();
    batch.ring().unwrap();
    for id in 4..=6 {
        assert_eq!(done(&a.cq).wr_id(), WrId(id));
    }
    assert_eq!(done(&b.cq).byte_len(), 43);
    assert_eq!(b.ctx.query_port(1).unwrap().bad_qkeys, 1);
    assert_quiet(&b.cq);
}

#[test]
fn what_a_datagram_queue_pair_cannot_do_is_refused() {
    let a = Side::new(config());
    let qp = a.qp(QpType::Ud).build().unwrap().activate_ud(KEY).unwrap();
    let memory = a.mr(8);
    let mut batch = qp.post_send();
    batch
        .read(WrId(1))
        .local(memory.sge(..))
        .remote(0, memory.rkey());
    assert!(matches!(
        batch.ring().unwrap_err().reason(),
        Reason::QpType(QpType::Ud)
    ));
    let mut batch = qp.post_send();
    batch.send(WrId(2)).inline(b"nowhere");
    assert!(matches!(
        batch.ring().unwrap_err().reason(),
        Reason::IncompleteWr
    ));
    let privileged = a.qp(QpType::Ud).build().unwrap().activate_ud(Qkey(1 << 31));
    assert!(matches!(
        privileged.unwrap_err().reason(),
        Reason::AttrValue(_)
    ));
    let v6 = Path::new("fd00::1".parse::<std::net::IpAddr>().unwrap().into(), 0);
    assert!(matches!(
        a.pd.create_ah(v6).unwrap_err().reason(),
        Reason::Endpoint
    ));
}

#[test]
fn a_queue_pair_in_a_group_is_not_destroyed() {
    // proves: roce-141
    let a = Side::new(config());
    let qp = a.qp(QpType::Ud).build().unwrap().activate_ud(KEY).unwrap();
    let group: std::net::IpAddr = "239.1.2.3".parse().unwrap();
    qp.attach_mcast(group.into()).unwrap();
    qp.attach_mcast(group.into()).unwrap();
    let refused = qp.destroy().unwrap_err();
    assert_eq!(refused.errno(), libc::EBUSY);
    qp.detach_mcast(group.into()).unwrap();
    assert!(qp.detach_mcast(group.into()).is_err());
    qp.destroy().unwrap();
    let unicast: std::net::IpAddr = "10.1.2.3".parse().unwrap();
    let rc = a.qp(QpType::Rc).build_reset().unwrap();
    assert!(rc.attach_mcast(group.into()).is_err());
    let ud = a.qp(QpType::Ud).build_reset().unwrap();
    assert!(ud.attach_mcast(unicast.into()).is_err());
}

#[test]
fn datagrams_over_ipv6() {
    // proves: roce-124
    let config = DeviceConfig::new().addr(std::net::Ipv6Addr::LOCALHOST.into());
    let a = match config.open() {
        Ok(ctx) => ctx,
        Err(error) => {
            println!("skipped, no IPv6 here: {error}");
            return;
        }
    };
    let pd = a.alloc_pd().unwrap();
    let cq = a.create_cq(16).build().unwrap();
    let make = || {
        let qp = pd.create_qp(QpType::Ud).send_cq(&cq).recv_cq(&cq);
        qp.build().unwrap().activate_ud(KEY).unwrap()
    };
    let (one, two) = (make(), make());
    let memory = pd.register(vec![0; 64], Access::LOCAL_WRITE).unwrap();
    let mut batch = two.post_recv();
    batch.recv(WrId(1)).local(memory.sge(..));
    batch.ring().unwrap();
    let gid = a.query_gid(1, 0).unwrap();
    let ah = pd.create_ah(Path::new(gid, 0)).unwrap();
    let mut batch = one.post_send();
    batch
        .send(WrId(2))
        .inline(b"six")
        .to(&ah, two.qp_num(), KEY);
    batch.ring().unwrap();
    let wc = done(&cq);
    assert_eq!(
        (wc.wr_id(), wc.byte_len(), wc.is_ipv4()),
        (WrId(1), 43, false)
    );
    let header: [u8; 40] = memory.to_vec(0, 40).unwrap().try_into().unwrap();
    assert_eq!(header[0] >> 4, 6);
    assert_eq!(header[8..24], gid.0);
    assert_eq!(header[24..40], gid.0);
    assert_eq!(Path::reply_to(&header, 0).unwrap().dest(), gid);
    assert_eq!(memory.to_vec(40, 3).unwrap(), b"six");
}
