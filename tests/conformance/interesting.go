//go:build linux

package main

// interestingPaths are looked at in every guest that reports.
var interestingPaths = []string{
	"/bin", "/sbin", "/lib", "/lib64", "/usr", "/usr/bin", "/etc", "/etc/passwd", "/etc/hostname", "/root", "/home",
	"/mnt", "/opt", "/srv", "/run", "/tmp", "/var", "/var/tmp", "/newroot", "/oldroot",
	"/dev", "/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom", "/dev/tty", "/dev/console",
	"/dev/stdin", "/dev/stdout", "/dev/stderr", "/dev/fd", "/dev/core", "/dev/ptmx", "/dev/pts", "/dev/shm",
	"/dev/mqueue", "/dev/kmsg", "/dev/mem",
	"/sys", "/sys/kernel", "/sys/fs/cgroup",
	"/proc", "/proc/1", "/proc/sys", "/proc/sys/kernel", "/proc/irq", "/proc/bus", "/proc/fs",
	"/proc/kcore", "/proc/keys", "/proc/sysrq-trigger", "/proc/timer_list", "/proc/acpi", "/proc/scsi",
}

// interestingFiles are opened for writing in every guest that reports.
var interestingFiles = []string{
	"/proc/sys/kernel/core_pattern", "/proc/sys/vm/drop_caches", "/proc/sys/user/max_user_namespaces",
	"/proc/sys/net/ipv4/ip_forward", "/proc/sysrq-trigger", "/proc/irq/default_smp_affinity",
	"/proc/self/oom_score_adj", "/proc/self/uid_map", "/proc/1/oom_score_adj",
	"/dev/null", "/dev/full", "/dev/tty", "/dev/ptmx", "/dev/kmsg", "/etc/passwd", "/sys/kernel/profiling",
}
