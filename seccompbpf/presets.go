package seccompbpf

import (
	"slices"
	"strings"
)

// Baseline returns the policy of the Python postern: everything is allowed but 32 calls that
// fail with EPERM, 8 that fail with ENOSYS, clone with CLONE_NEWUSER, and the two terminal ioctls
// that type into another program's input. It is here for compatibility; prefer Hardened.
func Baseline() Policy {
	return Policy{
		Name: "baseline",
		Rules: slices.Concat(
			deny("namespaces and mounts", EPERM, `unshare setns mount umount2 pivot_root chroot`),
			deny("kernel keyrings", EPERM, `add_key keyctl request_key`),
			deny("other processes and profiling", EPERM, `ptrace perf_event_open`),
			deny("NUMA placement", EPERM, `move_pages mbind get_mempolicy set_mempolicy migrate_pages`),
			deny("host administration", EPERM, `syslog uselib acct quotactl`),
			deny("kernel code", EPERM, `bpf init_module finit_module delete_module kexec_load kexec_file_load`),
			deny("host power and swap", EPERM, `reboot swapon swapoff`),
			deny("io_uring acts out of the filter's sight", EPERM, `io_uring_setup io_uring_enter io_uring_register`),
			deny("flags lie in memory, fall back to clone", ENOSYS, `clone3`),
			deny("new mount API", ENOSYS, `open_tree move_mount fsopen fsconfig fsmount fspick mount_setattr`),
			[]Rule{
				{"clone", []Cond{AnyBit(0, cloneNewUser)}, EPERM, "user namespaces"},
				{"ioctl", []Cond{Int(1, Equal, tiocsti)}, EPERM, "typing into a terminal"},
				{"ioctl", []Cond{Int(1, Equal, tioclinux)}, EPERM, "typing into a console"},
			},
		),
		Default:  Allow,
		Unlisted: Allow,
	}
}

// Hardened returns the default policy: Baseline and what the field has learned since.
//
//   - Socket families other than UNIX, INET and INET6, and NETLINK for anything but ROUTE, fail as
//     if the kernel lacked them. So does every socket made through the socketcall
//     multiplexer of x86, whose family cannot be seen.
//   - Files get no setuid or setgid bit, and no device nodes are made. Directories are
//     included: chmod g+s fails. openat2, whose mode cannot be seen, is ENOSYS. (mkdir needs no
//     rule, the kernel drops these bits there.)
//   - Ways into other processes and around path checks: process_vm_readv, pidfd_getfd, kcmp,
//     open_by_handle_at and their like.
//   - Kernel surface that no guest needs: userfaultfd, vm86, modify_ldt, line disciplines and so on.
//   - personality can be asked for, and set to the native and the 32-bit one.
//   - Numbers that are not in the tables are ENOSYS, so a future kernel adds no opening.
//   - All of x32 is ENOSYS, as on the many kernels that do not have it.
//
// It does not limit what the allowed calls can use up; that is for rlimits and cgroups.
func Hardened() Policy {
	p := Baseline()
	p.Name = "hardened"
	p.Unlisted = ENOSYS
	p.NoX32 = true
	p.Rules = slices.Concat(p.Rules,
		[]Rule{
			{"clone", []Cond{AnyBit(0, cloneNewAny)}, EPERM, "other namespaces"},
			{"ioctl", []Cond{Int(1, Equal, tiocsetd)}, EPERM, "line disciplines"},
		},
		deny("namespaces and mounts", EPERM, `umount listns`),
		deny("new mount API", ENOSYS, `open_tree_attr`),
		socketFamilies("socket"),
		socketFamilies("socketpair"),
		fileModes(),
		deny("other processes", EPERM, `process_vm_readv process_vm_writev pidfd_getfd kcmp`),
		deny("files by handle", EPERM, `open_by_handle_at name_to_handle_at`),
		deny("kernel surface", EPERM, `userfaultfd fanotify_init lookup_dcookie vm86 vm86old modify_ldt`),
		deny("NUMA placement", EPERM, `set_mempolicy_home_node`),
		deny("host administration", EPERM, `quotactl_fd iopl ioperm vhangup settimeofday stime clock_settime clock_settime64`),
		[]Rule{{"personality", []Cond{
			Int(0, NotEqual, perLinux), Int(0, NotEqual, perLinux32), Int(0, NotEqual, perQuery),
		}, EPERM, "execution domain"}},
	)
	return p
}

func deny(why string, action Action, syscalls string) []Rule {
	var rules []Rule
	for _, name := range strings.Fields(syscalls) {
		rules = append(rules, Rule{Syscall: name, Action: action, Why: why})
	}
	return rules
}

func socketFamilies(syscall string) []Rule {
	return []Rule{
		{syscall, []Cond{
			Int(0, NotEqual, afUnix), Int(0, NotEqual, afInet),
			Int(0, NotEqual, afInet6), Int(0, NotEqual, afNetlink),
		}, Errno(eafnosupport), "socket families"},
		{syscall, []Cond{Int(0, Equal, afNetlink), Int(2, NotEqual, netlinkRoute)},
			Errno(eprotonosupport), "netlink other than ROUTE"},
	}
}

func fileModes() []Rule {
	setID := func(syscall string, arg int, more ...Cond) Rule {
		return Rule{syscall, append(more, AnyBit(arg, setIDBits)), EPERM, "setuid and setgid bits"}
	}
	node := func(syscall string, arg int, format uint64) Rule {
		return Rule{syscall, []Cond{{arg, Equal, formatBits, format}}, EPERM, "device nodes"}
	}
	return []Rule{
		setID("chmod", 1),
		setID("fchmod", 1),
		setID("fchmodat", 2),
		setID("fchmodat2", 2),
		setID("creat", 1),
		// Without a flag that creates, the mode is whatever the register held.
		setID("open", 2, AnyBit(1, openCreates)),
		setID("openat", 3, AnyBit(2, openCreates)),
		{"openat2", nil, ENOSYS, "mode lies in memory, fall back to openat"},
		setID("mknod", 1),
		setID("mknodat", 2),
		node("mknod", 1, formatChar),
		node("mknod", 1, formatBlock),
		node("mknodat", 2, formatChar),
		node("mknodat", 2, formatBlock),
	}
}

// These have one value on all covered ABIs.
const (
	cloneNewUser = 0x10000000
	cloneNewAny  = 0x7e020000 // NEWNS, NEWCGROUP, NEWUTS, NEWIPC, NEWUSER, NEWPID, NEWNET

	tiocsti   = 0x5412
	tioclinux = 0x541c
	tiocsetd  = 0x5423

	afUnix       = 1
	afInet       = 2
	afInet6      = 10
	afNetlink    = 16
	netlinkRoute = 0

	setIDBits   = 0o6000
	formatBits  = 0o170000
	formatChar  = 0o020000
	formatBlock = 0o060000
	openCreates = 0o100 | 0o20000000 // O_CREAT, and what sets O_TMPFILE apart from O_DIRECTORY

	perLinux   = 0
	perLinux32 = 8
	perQuery   = 0xffffffff

	eprotonosupport = 93
	eafnosupport    = 97
)
