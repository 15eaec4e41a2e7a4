package seccompbpf

import (
	"slices"
	"strings"
	"testing"
)

// on makes the Data of a call by name; it fails the test if the ABI has none.
func on(t *testing.T, abi ABI, syscall string, args ...uint64) Data {
	t.Helper()
	nr, ok := abi.Number(syscall)
	if !ok {
		t.Fatalf("%s has no %s", abi, syscall)
	}
	d := Data{Nr: nr, Arch: abi.AuditArch()}
	copy(d.Args[:], args)
	return d
}

func has(abi ABI, syscall string) bool {
	_, ok := abi.Number(syscall)
	return ok
}

const (
	noFamily   = actionErrno | eafnosupport
	noProtocol = actionErrno | eprotonosupport
)

// hardenedCases is what Hardened adds to Baseline, call by call, on every ABI that has the call.
var hardenedCases = []struct {
	syscall string
	args    []uint64
	want    Action
}{
	{"socket", []uint64{1, 1, 0}, Allow},  // AF_UNIX
	{"socket", []uint64{2, 1, 6}, Allow},  // AF_INET
	{"socket", []uint64{10, 2, 0}, Allow}, // AF_INET6
	{"socket", []uint64{16, 3, 0}, Allow}, // AF_NETLINK, ROUTE
	{"socket", []uint64{16, 3, 12}, noProtocol},
	{"socket", []uint64{16, 3, 1 << 32}, Allow}, // the kernel sees protocol 0
	{"socket", []uint64{0, 1, 0}, noFamily},
	{"socket", []uint64{15, 3, 2}, noFamily}, // AF_KEY
	{"socket", []uint64{17, 3, 0}, noFamily}, // AF_PACKET
	{"socket", []uint64{38, 5, 0}, noFamily}, // AF_ALG
	{"socket", []uint64{40, 1, 0}, noFamily}, // AF_VSOCK
	{"socket", []uint64{44, 3, 0}, noFamily}, // AF_XDP
	{"socket", []uint64{1<<32 | 40, 1, 0}, noFamily},
	{"socket", []uint64{1<<32 | 1, 1, 0}, Allow},
	{"socket", []uint64{^uint64(0), 1, 0}, noFamily},
	{"socketpair", []uint64{1, 1, 0}, Allow},
	{"socketpair", []uint64{1, 5 | 0o2000000, 0}, Allow},
	{"socketpair", []uint64{30, 5, 0}, noFamily}, // AF_TIPC
	{"socketpair", []uint64{16, 3, 12}, noProtocol},

	{"socketcall", []uint64{1}, noFamily}, // socket, family in memory
	{"socketcall", []uint64{8}, noFamily}, // socketpair
	{"socketcall", []uint64{1<<32 | 1}, noFamily},
	{"socketcall", []uint64{3}, Allow},  // connect
	{"socketcall", []uint64{16}, Allow}, // sendmsg
	{"ipc", []uint64{23}, Allow},        // shmget

	{"chmod", []uint64{0, 0o755}, Allow},
	{"chmod", []uint64{0, 0o1777}, Allow},
	{"chmod", []uint64{0, 0o4755}, EPERM},
	{"chmod", []uint64{0, 0o2755}, EPERM},
	{"chmod", []uint64{0, 0o6000}, EPERM},
	{"chmod", []uint64{0, 1<<16 | 0o4000}, EPERM}, // the kernel sees 16 bits
	{"chmod", []uint64{0, 0xffff0000 | 0o755}, Allow},
	{"fchmod", []uint64{3, 0o4700}, EPERM},
	{"fchmod", []uint64{3, 0o700}, Allow},
	{"fchmodat", []uint64{3, 0o4000, 0o755}, Allow},
	{"fchmodat", []uint64{3, 0, 0o2755}, EPERM},
	{"fchmodat2", []uint64{3, 0, 0o4755}, EPERM},
	{"fchmodat2", []uint64{3, 0, 0o755}, Allow},
	{"creat", []uint64{0, 0o4755}, EPERM},
	{"creat", []uint64{0, 0o644}, Allow},
	{"open", []uint64{0, 0o101, 0o4755}, EPERM},        // O_CREAT|O_WRONLY
	{"open", []uint64{0, 0o101, 0o644}, Allow},         //
	{"open", []uint64{0, 0, 0o6777}, Allow},            // mode means nothing
	{"open", []uint64{0, 0o20200002, 0o4755}, EPERM},   // O_TMPFILE
	{"open", []uint64{0, 0o200000, 0o4755}, Allow},     // O_DIRECTORY
	{"openat", []uint64{3, 0, 0o101, 0o2755}, EPERM},   //
	{"openat", []uint64{3, 0, 0o101, 0o666}, Allow},    //
	{"openat", []uint64{3, 0, 0, ^uint64(0)}, Allow},   //
	{"openat", []uint64{3, 0, 1 << 32, 0o4755}, Allow}, //
	{"openat2", []uint64{3}, ENOSYS},
	{"mknod", []uint64{0, 0o010644, 0}, Allow}, // FIFO
	{"mknod", []uint64{0, 0o140644, 0}, Allow}, // socket
	{"mknod", []uint64{0, 0o100644, 0}, Allow}, // regular
	{"mknod", []uint64{0, 0o644, 0}, Allow},
	{"mknod", []uint64{0, 0o020644, 0}, EPERM}, // also 0:0, a whiteout
	{"mknod", []uint64{0, 0o060644, 0x800}, EPERM},
	{"mknod", []uint64{0, 0o104755, 0}, EPERM},
	{"mknod", []uint64{0, 1<<16 | 0o020644, 0}, EPERM},
	{"mknodat", []uint64{3, 0, 0o010644, 0}, Allow},
	{"mknodat", []uint64{3, 0, 0o020644, 0x103}, EPERM},
	{"mknodat", []uint64{3, 0, 0o060644, 0}, EPERM},
	{"mknodat", []uint64{3, 0, 0o102755, 0}, EPERM},
	{"mkdir", []uint64{0, 0o2755}, Allow}, // the kernel drops the bit

	{"clone", []uint64{0x003d0f00}, Allow}, // pthread_create
	{"clone", []uint64{0x4111}, Allow},     // vfork
	{"clone", []uint64{0x1000 | 17}, Allow},
	{"clone", []uint64{0x00020000}, EPERM}, // NEWNS
	{"clone", []uint64{0x02000000}, EPERM}, // NEWCGROUP
	{"clone", []uint64{0x04000000}, EPERM},
	{"clone", []uint64{0x08000000}, EPERM},
	{"clone", []uint64{0x10000000}, EPERM},
	{"clone", []uint64{0x20000000}, EPERM},
	{"clone", []uint64{0x40000000}, EPERM},
	{"clone", []uint64{0x10000000 << 32}, Allow}, // out of the kernel's sight
	{"clone3", nil, ENOSYS},

	{"ioctl", []uint64{0, 0x5401}, Allow}, // TCGETS
	{"ioctl", []uint64{0, 0x5412}, EPERM},
	{"ioctl", []uint64{0, 1<<32 | 0x5412}, EPERM},
	{"ioctl", []uint64{0, 0x541c}, EPERM},
	{"ioctl", []uint64{0, 0x5423}, EPERM}, // TIOCSETD
	{"ioctl", []uint64{0, 0x5413}, Allow}, // TIOCGWINSZ

	{"personality", []uint64{0}, Allow},
	{"personality", []uint64{8}, Allow},
	{"personality", []uint64{0xffffffff}, Allow},
	{"personality", []uint64{^uint64(0)}, Allow},
	{"personality", []uint64{0x0400000}, EPERM}, // READ_IMPLIES_EXEC
	{"personality", []uint64{0x0040000}, EPERM}, // ADDR_NO_RANDOMIZE
	{"personality", []uint64{1<<32 | 0x0400008}, EPERM},

	{"umount", nil, EPERM},
	{"listns", nil, EPERM},
	{"open_tree_attr", nil, ENOSYS},
	{"process_vm_readv", nil, EPERM},
	{"process_vm_writev", nil, EPERM},
	{"pidfd_getfd", nil, EPERM},
	{"kcmp", nil, EPERM},
	{"open_by_handle_at", nil, EPERM},
	{"name_to_handle_at", nil, EPERM},
	{"userfaultfd", nil, EPERM},
	{"fanotify_init", nil, EPERM},
	{"lookup_dcookie", nil, EPERM},
	{"vm86", nil, EPERM},
	{"vm86old", nil, EPERM},
	{"modify_ldt", nil, EPERM},
	{"set_mempolicy_home_node", nil, EPERM},
	{"quotactl_fd", nil, EPERM},
	{"iopl", nil, EPERM},
	{"ioperm", nil, EPERM},
	{"vhangup", nil, EPERM},
	{"settimeofday", nil, EPERM},
	{"stime", nil, EPERM},
	{"clock_settime", nil, EPERM},
	{"clock_settime64", nil, EPERM},

	// Calls that look alike and must keep working.
	{"landlock_create_ruleset", nil, Allow},
	{"landlock_restrict_self", nil, Allow},
	{"seccomp", nil, Allow},
	{"pidfd_open", nil, Allow},
	{"pidfd_send_signal", nil, Allow},
	{"memfd_create", nil, Allow},
	{"statmount", nil, Allow},
	{"listmount", nil, Allow},
	{"rseq", nil, Allow},
	{"mseal", nil, Allow},
	{"adjtimex", nil, Allow}, // reads the clock state without privilege
	{"uretprobe", nil, Allow},
	{"set_thread_area", nil, Allow},
	{"set_tls", nil, Allow},
	{"cacheflush", nil, Allow},
}

func TestHardenedCases(t *testing.T) {
	p, withX32 := Hardened(), Hardened()
	withX32.NoX32 = false
	f, fX32 := compile(t, p), compile(t, withX32)
	for _, c := range hardenedCases {
		known := false
		for _, abi := range ABIs() {
			if !has(abi, c.syscall) {
				continue
			}
			known = true
			d := on(t, abi, c.syscall, c.args...)
			if got := fX32.Verdict(d); got != c.want {
				t.Errorf("%s: %s(%#x): %v, want %v", abi, c.syscall, c.args, got, c.want)
			}
			want := c.want
			if abi == X32 {
				want = ENOSYS
			}
			if got := f.Verdict(d); got != want {
				t.Errorf("%s: %s(%#x): %v, want %v", abi, c.syscall, c.args, got, want)
			}
		}
		if !known {
			t.Errorf("no ABI has %s", c.syscall)
		}
	}
}

// Whatever a policy made from Hardened says of a call, on x32 there is none.
func TestHardenedHasNoX32(t *testing.T) {
	for _, p := range []Policy{
		Hardened(), Hardened().Without("ptrace", "read"), Hardened().With(Rule{Syscall: "read", Action: Trap}),
	} {
		for _, f := range []Filter{compile(t, p), compileFor(t, p, "amd64")} {
			if got := f.Verdict(on(t, AMD64, "getpid")); got != Allow {
				t.Fatalf("%s: getpid: %v; the test proves nothing", AMD64, got)
			}
			for _, nr := range sweepNumbers() {
				d := Data{Arch: auditAMD64, Nr: nr | x32Bit}
				if got := p.Evaluate(d); got != ENOSYS {
					t.Fatalf("number %#x: Evaluate: %v, want ENOSYS", d.Nr, got)
				}
				if got := f.Verdict(d); got != ENOSYS {
					t.Fatalf("number %#x: %v, want ENOSYS", d.Nr, got)
				}
			}
		}
	}
	if got := compile(t, Baseline()).Verdict(on(t, X32, "getpid")); got != Allow {
		t.Errorf("Baseline: getpid on x32: %v, want allow", got)
	}
}

func TestHardenedRulesAllHaveACase(t *testing.T) {
	base := len(Baseline().Rules)
	for _, r := range Hardened().Rules[base:] {
		covered := false
		for _, c := range hardenedCases {
			if c.syscall == r.Syscall && c.want == r.Action {
				covered = true
			}
		}
		if !covered {
			t.Errorf("no case sees %s get %v", r.Syscall, r.Action)
		}
	}
}

// Whatever Baseline denies, Hardened denies, with the same error but on x32, which it does not have.
func TestHardenedIsNoWeakerThanBaseline(t *testing.T) {
	base, hard := compile(t, Baseline()), compile(t, Hardened())
	denials := 0
	for _, arch := range sweepArchs() {
		for _, nr := range sweepNumbers() {
			for _, args := range sweepArgs() {
				d := Data{Arch: arch, Nr: nr, Args: args}
				if b := base.Verdict(d); b != Allow {
					denials++
					want := b
					if arch == auditAMD64 && nr&x32Bit != 0 {
						want = ENOSYS
					}
					if h := hard.Verdict(d); h != want {
						t.Fatalf("%+v: %v, want %v; Baseline says %v", d, h, want, b)
					}
				}
			}
		}
	}
	if denials == 0 {
		t.Error("Baseline denied nothing")
	}
}

func TestHardenedDeniesNumbersInNoTable(t *testing.T) {
	f := compile(t, Hardened())
	for _, abi := range ABIs() {
		base := uint32(0)
		if abi == X32 {
			base = x32Bit
		}
		newest := uint32(0)
		for _, e := range abis[abi].table {
			if e.nr-base < 0x1000 {
				newest = max(newest, e.nr)
			}
		}
		for _, nr := range []uint32{newest + 1, newest + 2, base + 0x1000, base + 0x3fffffff, base | 0x80000000} {
			if got := f.Verdict(Data{Arch: abi.AuditArch(), Nr: nr}); got != ENOSYS {
				t.Errorf("%s number %#x: %v, want ENOSYS", abi, nr, got)
			}
		}
	}
	// Numbers of x32 without its bit, and numbers that x32 does not share, reached the same
	// functions on kernels before 5.4.
	for _, nr := range []uint32{521, 528, 539, x32Bit | 101, x32Bit | 246, x32Bit | 310} {
		if got := f.Verdict(Data{Arch: auditAMD64, Nr: nr}); got != ENOSYS {
			t.Errorf("number %#x: %v, want ENOSYS", nr, got)
		}
	}
}

func TestUncoveredArchitectureIsKilled(t *testing.T) {
	for _, p := range []Policy{Baseline(), Hardened(), {Default: Allow, Unlisted: Allow}} {
		f := compile(t, p)
		for _, arch := range sweepArchs() {
			if _, _, covered := Identify(arch, 0); covered {
				continue
			}
			for _, nr := range sweepNumbers() {
				if got := f.Verdict(Data{Arch: arch, Nr: nr}); got != KillProcess {
					t.Fatalf("%q on arch %#x, number %#x: %v", p.Name, arch, nr, got)
				}
			}
		}
	}
}

func TestPresetsAreFreshValues(t *testing.T) {
	p := Hardened()
	p.Rules[0].Action = Allow
	if Hardened().Rules[0].Action != EPERM {
		t.Error("changing one Hardened changes the next")
	}
}

func TestPresetRulesExplainThemselves(t *testing.T) {
	for _, r := range Hardened().Rules {
		if strings.TrimSpace(r.Why) == "" {
			t.Errorf("rule for %s has no Why", r.Syscall)
		}
	}
	if n := slices.IndexFunc(Hardened().Rules, func(r Rule) bool { return r.Action.permits() }); n >= 0 {
		t.Errorf("rule %d of a denylist allows", n)
	}
}
