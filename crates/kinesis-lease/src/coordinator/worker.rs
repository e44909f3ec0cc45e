//! The default name of a worker.

use kinesis_core::WorkerId;

/// Host names are cut here, so that the whole stays a valid name.
const HOST_LEN: usize = 200;

/// `host-pid-xxxxxxxx` with eight random hexadecimal digits, so that two workers never share a name, not even in two
/// containers where both are process 1 of the same host name.
pub(super) fn default_name(random: &mut fastrand::Rng) -> WorkerId {
    let host: String =
        host_name().chars().filter(|c| !c.is_control() && !c.is_whitespace()).take(HOST_LEN).collect();
    let host = if host.is_empty() { "host" } else { &host };
    let name = format!("{host}-{}-{:08x}", std::process::id(), random.u32(..));
    WorkerId::new(name).expect("not blank, without control characters and short enough")
}

fn host_name() -> String {
    let files = ["/proc/sys/kernel/hostname", "/etc/hostname"];
    let from_files = files.iter().find_map(|path| std::fs::read_to_string(path).ok());
    let from_environment = || ["HOSTNAME", "COMPUTERNAME"].iter().find_map(|name| std::env::var(name).ok());
    from_files.or_else(from_environment).unwrap_or_default()
}
