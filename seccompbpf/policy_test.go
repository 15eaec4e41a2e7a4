package seccompbpf

import (
	"errors"
	"reflect"
	"strings"
	"testing"
)

func TestWithAndWithoutLeaveTheOriginalAlone(t *testing.T) {
	p := Hardened()
	p.With(Rule{Syscall: "mount", Action: Allow})
	p.Without("mount", "clone")
	if !reflect.DeepEqual(p, Hardened()) {
		t.Error("the policy changed")
	}
}

func TestWithRulesWin(t *testing.T) {
	p := Hardened().With(
		Rule{Syscall: "mount", Action: Errno(13)},
		Rule{Syscall: "chmod", When: []Cond{AnyBit(1, 0o4000)}, Action: EPERM},
		Rule{Syscall: "chmod", Action: Allow},
	)
	f := compile(t, p)
	for _, c := range []struct {
		d    Data
		want Action
	}{
		{on(t, AMD64, "mount"), Errno(13)},
		{on(t, AMD64, "chmod", 0, 0o2755), Allow},
		{on(t, AMD64, "chmod", 0, 0o4755), EPERM},
		{on(t, AMD64, "fchmod", 0, 0o2755), EPERM},
	} {
		if got := f.Verdict(c.d); got != c.want {
			t.Errorf("%+v: %v, want %v", c.d, got, c.want)
		}
	}
}

func TestWithoutAllowsOnEveryABI(t *testing.T) {
	p := Hardened().Without("ptrace", "ioctl", "openat2", "socket")
	p.NoX32 = false
	f := compile(t, p)
	for _, abi := range ABIs() {
		for _, d := range []Data{
			on(t, abi, "ptrace"), on(t, abi, "ioctl", 0, tiocsti), on(t, abi, "openat2"), on(t, abi, "socket", 40),
		} {
			if got := f.Verdict(d); got != Allow {
				t.Errorf("%s: %+v: %v", abi, d, got)
			}
		}
		if got := f.Verdict(on(t, abi, "mount")); got != EPERM {
			t.Errorf("%s: mount: %v", abi, got)
		}
	}
	if got := f.Verdict(on(t, I386, "socketcall", 1)); got != Allow {
		t.Errorf("socketcall(SYS_SOCKET): %v", got)
	}
	if got := f.Verdict(on(t, I386, "socketcall", 8)); got != noFamily {
		t.Errorf("socketcall(SYS_SOCKETPAIR): %v", got)
	}
}

func TestWithoutShowsInTheListing(t *testing.T) {
	second := strings.Split(Hardened().Without("ptrace").String(), "\n")[1]
	if !strings.HasPrefix(second, "allow") || !strings.Contains(second, "ptrace") {
		t.Errorf("the listing begins with %q", second)
	}
}

func TestMultiplexersFollowTheRules(t *testing.T) {
	const version = 1 << 16
	for _, c := range []struct {
		name  string
		rules []Rule
		d     Data
		want  Action
	}{
		{"a denied call is denied", []Rule{{Syscall: "shmget", Action: EPERM}}, on(t, I386, "ipc", 23), EPERM},
		{"its version is ignored", []Rule{{Syscall: "shmget", Action: EPERM}}, on(t, I386, "ipc", version|23), EPERM},
		{"others are not", []Rule{{Syscall: "shmget", Action: EPERM}}, on(t, I386, "ipc", 24), Allow},
		{"a condition that denies counts as met", []Rule{
			{Syscall: "bind", When: []Cond{Int(0, Equal, 99)}, Action: EPERM},
		}, on(t, I386, "socketcall", 2), EPERM},
		{"a condition that allows counts as unmet", []Rule{
			{Syscall: "bind", When: []Cond{Int(0, Equal, 3)}, Action: Allow},
			{Syscall: "bind", Action: EPERM},
		}, on(t, I386, "socketcall", 2), EPERM},
		{"an earlier rule for the multiplexer wins", []Rule{
			{Syscall: "socketcall", Action: Allow},
			{Syscall: "bind", Action: EPERM},
		}, on(t, I386, "socketcall", 2), Allow},
	} {
		p := Policy{Rules: c.rules, Default: Allow, Unlisted: Allow}
		if got := compile(t, p).Verdict(c.d); got != c.want {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
		if got := p.Evaluate(c.d); got != c.want {
			t.Errorf("%s: Evaluate: %v, want %v", c.name, got, c.want)
		}
	}
}

func TestMultiplexersOfAnAllowlist(t *testing.T) {
	p := Policy{
		Rules: []Rule{
			{Syscall: "connect", Action: Allow},
			{Syscall: "socket", When: []Cond{Int(0, Equal, afUnix)}, Action: Allow},
		},
		Default: EPERM, Unlisted: EPERM,
	}
	f := compile(t, p)
	if got := f.Verdict(on(t, I386, "socketcall", 3)); got != Allow {
		t.Errorf("connect: %v", got)
	}
	if got := f.Verdict(on(t, I386, "socketcall", 1)); got != EPERM {
		t.Errorf("socket, family unseen: %v", got)
	}
}

func TestZeroPolicyKills(t *testing.T) {
	f := compile(t, Policy{})
	for _, abi := range ABIs() {
		if got := f.Verdict(on(t, abi, "read")); got != KillThread {
			t.Errorf("%s: %v", abi, got)
		}
	}
}

func TestCompileRefusesBadPolicies(t *testing.T) {
	rule := func(c ...Cond) Policy {
		return Policy{Rules: []Rule{{Syscall: "read", When: c}}}
	}
	for want, p := range map[string]Policy{
		"spelling":                 {Rules: []Rule{{Syscall: "mouunt"}}},
		"rule 1":                   {Rules: []Rule{{Syscall: "read"}, {Syscall: "SYS_mount"}}},
		"arguments 0 to 5":         rule(Int(6, Equal, 0)),
		"argument -1":              rule(Int(-1, Equal, 0)),
		"unknown comparison":       rule(Int(0, 2, 0)),
		"empty Mask":               rule(AnyBit(0, 0)),
		"outside Mask":             rule(Cond{Mask: 1, Value: 2}),
		"errno 4096":               {Default: Errno(4096)},
		"Unlisted: errno":          {Unlisted: Errno(65535)},
		"needs a supervisor":       {Default: actionTrace},
		"user-notify":              {Default: actionUser},
		`policy "of no name"`:      {Name: "of no name", Rules: []Rule{{Syscall: ""}}},
		"all of x32 through":       {NoX32: true, Default: EPERM, Unlisted: Log},
		"spelling\nfield Unlisted": {Rules: []Rule{{Syscall: "x"}}, Unlisted: actionUser},
	} {
		f, err := p.Compile()
		if !errors.Is(err, ErrInvalidPolicy) || f != nil {
			t.Errorf("%q: %v, %v", want, f, err)
		} else if !strings.Contains(err.Error(), want) {
			t.Errorf("the error should say %q: %v", want, err)
		}
	}
	if _, err := Hardened().Without("ptrase").Compile(); !errors.Is(err, ErrInvalidPolicy) {
		t.Errorf("Without a misspelt name: %v", err)
	}
}

func TestCompileRefusesWhatTheKernelCannotHold(t *testing.T) {
	var p Policy
	for i := range uint32(5000) {
		p.Rules = append(p.Rules, Rule{Syscall: "read", When: []Cond{Int(0, Equal, i)}, Action: EPERM})
	}
	if _, err := p.Compile(); !errors.Is(err, ErrInvalidPolicy) || !errors.Is(err, ErrInvalidFilter) {
		t.Errorf("got %v", err)
	}
}

func TestListing(t *testing.T) {
	p := Policy{
		Name: "example",
		Rules: []Rule{
			{Syscall: "mount", Action: EPERM, Why: "mounts"},
			{Syscall: "umount2", Action: EPERM, Why: "mounts"},
			{Syscall: "bpf", Action: ENOSYS},
			{Syscall: "ioctl", When: []Cond{Int(1, Equal, 0x5412), AnyBit(0, 3)}, Action: Errno(200)},
			{Syscall: "shmget", Action: EPERM, Why: "shared memory"},
			{Syscall: "bind", When: []Cond{Int(0, Equal, 1)}, Action: EPERM},
			{Syscall: "bind", When: []Cond{Int(0, Equal, 2)}, Action: ENOSYS},
			{Syscall: "socketcall", Action: Allow},
			{Syscall: "connect", Action: EPERM},
			{Syscall: "lseek", When: []Cond{{Arg: 1, Op: NotEqual, Mask: 1<<64 - 1, Value: 1}}, Action: Trap},
		},
		Default:  Allow,
		Unlisted: Log,
	}
	const want = `seccomp policy "example"
EPERM            mount umount2  # mounts
ENOSYS           bpf
errno(200)       ioctl if (int)arg1 == 0x5412 && (arg0 & 0x3) != 0x0
EPERM            shmget  # shared memory
EPERM            ipc if (arg0 & 0xffff) == 0x17  # shared memory
EPERM            bind if (int)arg0 == 0x1
EPERM            socketcall if (int)arg0 == 0x2
ENOSYS           bind if (int)arg0 == 0x2
allow            socketcall
EPERM            connect
trap(0)          lseek if arg1 != 0x1
allow            any other call
log              numbers in no table
kill-process     other architectures
`
	if got := p.String(); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	p.NoX32, p.Unlisted = true, ENOSYS
	const line = "\nENOSYS           numbers in no table and all of x32\n"
	if got := p.String(); !strings.Contains(got, line) {
		t.Errorf("got\n%s\nwithout the line\n%s", got, line)
	}
}

func TestActionString(t *testing.T) {
	for a, want := range map[Action]string{
		KillThread: "kill-thread", KillProcess: "kill-process", Allow: "allow", Log: "log",
		EPERM: "EPERM", Errno(0): "errno(0)", Trap | 7: "trap(7)", actionTrace | 1: "trace(1)",
		actionUser: "user-notify", 0x12340000: "action(0x12340000)",
	} {
		if got := a.String(); got != want {
			t.Errorf("%#x: %q, want %q", uint32(a), got, want)
		}
	}
	if n, ok := Errno(38).Errno(); !ok || n != 38 {
		t.Errorf("Errno(38).Errno() = %d, %v", n, ok)
	}
	if _, ok := Allow.Errno(); ok {
		t.Error("Allow has an errno")
	}
}
