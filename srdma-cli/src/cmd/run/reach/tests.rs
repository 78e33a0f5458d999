//! Programs made by hand: headers of executables, scripts, bits.

#![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

use super::*;
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::sync::atomic::{AtomicU32, Ordering};

/// A folder with programs; removed when dropped.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let next = NEXT.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("srdma-reach-{}-{next}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    fn program(&self, name: &str, bytes: &[u8]) -> PathBuf {
        let path = self.0.join(name);
        fs::write(&path, bytes).unwrap();
        fs::set_permissions(&path, Permissions::from_mode(0o755)).unwrap();
        path
    }

    fn judge(&self, path: &Path) -> Vec<Obstacle> {
        let mut found = BTreeSet::new();
        judge(path, self.0.as_os_str(), SCRIPTS, &mut found);
        found.into_iter().collect()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// An executable with these segments; the loader's path stands behind the table.
fn elf(class: u8, machine: u16, loader: Option<&str>) -> Vec<u8> {
    let mut bytes = vec![0; HEADER + PROGRAM_HEADER];
    let mut put = |at: usize, value: &[u8]| {
        bytes
            .iter_mut()
            .skip(at)
            .zip(value)
            .for_each(|(to, from)| *to = *from);
    };
    put(0, b"\x7fELF");
    put(4, &[class, 1, 1]);
    put(18, &machine.to_le_bytes());
    put(32, &(HEADER as u64).to_le_bytes());
    put(54, &56u16.to_le_bytes());
    put(56, &1u16.to_le_bytes());
    if let Some(loader) = loader {
        put(HEADER, &PT_INTERP.to_le_bytes());
        put(
            HEADER + 8,
            &((HEADER + PROGRAM_HEADER) as u64).to_le_bytes(),
        );
        put(HEADER + 32, &(loader.len() as u64 + 1).to_le_bytes());
        bytes.extend(loader.bytes().chain([0]));
    }
    bytes
}

const OURS: u16 = if cfg!(target_arch = "x86_64") {
    62
} else {
    183
};
const GLIBC: Option<&str> = Some("/lib64/ld-linux-x86-64.so.2");

#[test]
fn headers_tell_who_loads_a_program() {
    let folder = Folder::new();
    let musl = "/lib/ld-musl-x86_64.so.1";
    let judge = |bytes: &[u8]| folder.judge(&folder.program("p", bytes));
    let path = folder.0.join("p");
    assert_eq!(judge(&elf(2, OURS, GLIBC)), []);
    assert_eq!(judge(&elf(2, OURS, None)), [Obstacle::Static(path.clone())]);
    assert_eq!(judge(&elf(1, 3, GLIBC)), [Obstacle::Machine(path.clone())]);
    assert_eq!(
        judge(&elf(2, 243, GLIBC)),
        [Obstacle::Machine(path.clone())]
    );
    let expected = Obstacle::Libc(path, musl.to_owned());
    assert_eq!(judge(&elf(2, OURS, Some(musl))), [expected]);
    // Headers that lie are not judged, and nothing is read beyond them.
    let mut far = elf(2, OURS, GLIBC);
    far.iter_mut()
        .skip(32)
        .take(8)
        .for_each(|byte| *byte = 0xff);
    assert_eq!(judge(&far), []);
    for len in 0..HEADER {
        let whole = elf(2, OURS, GLIBC);
        judge(whole.get(..len).unwrap());
    }
}

#[test]
fn scripts_lead_to_their_interpreter() {
    let folder = Folder::new();
    let fixed = folder.program("fixed", &elf(2, OURS, None));
    let at = fixed.display();
    for line in [
        format!("#!{at}\n"),
        format!("#! {at} -x\nrest"),
        "#!/usr/bin/env fixed\n".to_owned(),
        "#!/usr/bin/env -S A=1 fixed -u\n".to_owned(),
    ] {
        let script = folder.program("script", line.as_bytes());
        assert_eq!(
            folder.judge(&script),
            [Obstacle::Static(fixed.clone())],
            "{line}"
        );
        let second = folder.program("second", format!("#!{}\n", script.display()).as_bytes());
        assert_eq!(
            folder.judge(&second),
            [Obstacle::Static(fixed.clone())],
            "{line}"
        );
    }
    let circle = folder.0.join("circle");
    folder.program("circle", format!("#!{}\n", circle.display()).as_bytes());
    assert_eq!(folder.judge(&circle), []);
    assert_eq!(folder.judge(&folder.program("none", b"#!\n")), []);
    assert_eq!(folder.judge(&folder.0.join("missing")), []);
}

#[test]
fn bits_count_where_they_change_somebody() {
    let folder = Folder::new();
    let path = folder.program("bits", &elf(2, OURS, GLIBC));
    let data = |mode| {
        fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
        fs::metadata(&path).unwrap()
    };
    let (user, group) = (data(0o755).uid(), data(0o755).gid());
    assert!(!changes_id(&data(0o755), user + 1, group + 1));
    assert!(changes_id(&data(0o4755), user + 1, group));
    assert!(
        !changes_id(&data(0o4755), user, group),
        "the owner stays who it is"
    );
    assert!(changes_id(&data(0o2755), user, group + 1));
    assert!(
        !changes_id(&data(0o2745), user, group + 1),
        "mandatory locking"
    );
}

#[test]
fn programs_are_found_as_shells_find_them() {
    let folder = Folder::new();
    folder.program("here", b"x");
    fs::write(folder.0.join("data"), "x").unwrap();
    let search = std::env::join_paths([Path::new("/nonexistent"), &folder.0]).unwrap();
    let find = |name: &str| look_up(OsStr::new(name), &search);
    assert_eq!(find("here"), Some(folder.0.join("here")));
    assert_eq!(find("data"), None);
    assert_eq!(find("./any"), Some("./any".into()));
}
