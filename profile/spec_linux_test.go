package profile

import (
	"errors"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/populationgenomics/postern-go/mounts"
	"github.com/populationgenomics/postern-go/nsexec"
	"github.com/populationgenomics/postern-go/seccompbpf"
)

func paths(ops []mounts.Op) []string {
	var out []string
	for _, op := range ops {
		out = append(out, op.String())
	}
	return out
}

// Promise 110: these twelve are covered, whatever else is.
func TestMasks(t *testing.T) {
	for _, m := range []string{"sys", "sysrq-trigger", "irq", "bus", "fs", "acpi", "scsi", "kcore", "keys", "latency_stats", "timer_list", "sched_debug"} {
		if !slices.Contains(masks, m) && !slices.Contains(hidden, m) {
			t.Errorf("/proc/%s is not covered", m)
		}
	}
}

// Promises 97 to 125: the launch of the zero profile, wholly. Promise 176: it
// is made without side effects.
func TestSpecOfTheZeroProfile(t *testing.T) {
	got, err := Profile{}.Spec([]string{"prog", "arg"})
	if err != nil {
		t.Fatal(err)
	}
	id := uint32(65534)
	mode := mounts.Perm(0o1777)
	want := &nsexec.Spec{
		Path: "prog", Args: []string{"prog", "arg"},
		Env:        []string{"PATH=/usr/local/bin:/usr/bin:/bin", "PWD=/workspace"},
		Dir:        "/workspace",
		Namespaces: nsexec.AllNew(), UID: &id, GID: &id,
		Init: true, NewSession: true,
		Seccomp: []seccompbpf.Filter{seccompbpf.HardenedFilter()},
		Limits:  Limits{Processes: 1024}.list(),
		Mounts: &mounts.Tree{RootSize: 16 << 20, RootInodes: 4096, Ops: []mounts.Op{
			mounts.Bind{Source: "/usr", Dest: "/usr"},
			mounts.Bind{Source: "/lib", Dest: "/lib", Optional: true},
			mounts.Bind{Source: "/lib64", Dest: "/lib64", Optional: true},
			mounts.Bind{Source: "/bin", Dest: "/bin", Optional: true},
			mounts.Bind{Source: "/sbin", Dest: "/sbin", Optional: true},
			mounts.Dir{Dest: "/etc"},
			mounts.Bind{Source: "/etc/ld.so.cache", Dest: "/etc/ld.so.cache", Optional: true},
			mounts.Proc{Dest: "/proc", Masks: masks, Hidden: hidden},
			mounts.Dev{Dest: "/dev", Size: 1 << 20, Inodes: 1024, FixedNodes: true},
			mounts.Tmpfs{Dest: "/dev/shm", Perm: mode, Size: DefaultShmSize, Inodes: DefaultShmSize / 4096},
			mounts.Tmpfs{Dest: "/tmp", Perm: mode, Size: DefaultTmpSize, Inodes: DefaultTmpSize / 4096},
			mounts.Tmpfs{Dest: "/workspace", Perm: mode, Size: DefaultTmpSize, Inodes: DefaultTmpSize / 4096},
		}},
	}
	if d := cmp.Diff(want, got, cmp.AllowUnexported(nsexec.Namespace{}), cmpopts.IgnoreUnexported(os.File{})); d != "" {
		t.Error(d)
	}
}

// Neither what is wrong with the profile nor what is with the command gets by.
func TestSpecChecks(t *testing.T) {
	for _, tt := range []struct {
		profile Profile
		args    []string
		field   string
	}{
		{Profile{TmpSize: -2}, []string{"true"}, "Profile.TmpSize"},
		{Profile{}, nil, "Command.Args"},
	} {
		s, err := tt.profile.Spec(tt.args)
		if fe, ok := errors.AsType[*FieldError](err); !ok || fe.Field != tt.field || s != nil {
			t.Errorf("%v %v", s, err)
		}
	}
}

// What is extra lies above everything, and replaces variables of its names.
func TestExtra(t *testing.T) {
	p := Profile{Env: []string{"A=profile"}, WritableBinds: []Bind{{Host: "/srv"}}}
	if err := p.Validate(); err != nil {
		t.Fatal(err)
	}
	op := mounts.Dir{Dest: "/x"}
	s, err := p.CommandSpec("", Command{Args: []string{"true"}, Env: []string{"B=command"}}, Extra{Env: []string{"A=extra", "C=1=2"}, Mounts: []mounts.Op{op}})
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"PATH=" + DefaultPath, "A=extra", "B=command", "PWD=/workspace", "C=1=2"}
	if d := cmp.Diff(want, s.Env); d != "" {
		t.Error(d)
	}
	if got := s.Mounts.Ops[len(s.Mounts.Ops)-1]; got != op {
		t.Errorf("the last mount is %v", got)
	}
}

// Promises 107, 108, 118, 119, 125: what the user adds comes after all it may
// lie below, in order.
// Plain commands can be launched from one template.
func TestPlainCommands(t *testing.T) {
	size, user := WindowSize{Rows: 1, Cols: 1}, uint32(1000)
	for name, p := range map[string]Profile{
		"zero": {},
		"full": {
			Env: []string{"A=1"}, HostUID: &user, Etc: &Etc{User: "me"}, StubFiles: []string{"/srv/m.py"},
			Limits: Limits{AddressSpace: 1 << 30}, ReadOnlyBinds: []Bind{{Host: "/srv"}}, TmpSize: 1 << 20,
		},
	} {
		spec := func(c Command) *nsexec.Spec {
			s, err := p.CommandSpec("/ws", c, Extra{Env: []string{"B=2"}})
			if err != nil {
				t.Fatal(err)
			}
			return s
		}
		launch := cmp.Options{
			cmpopts.IgnoreFields(nsexec.Spec{}, "Path", "Args", "Env"),
			cmp.AllowUnexported(nsexec.Namespace{}),
		}
		first := spec(Command{Args: []string{"first"}})
		for _, c := range []Command{
			{Args: []string{"second", "with", "arguments"}, Env: []string{"C=3", "A=4"}},
			{Args: []string{"second"}, Input: []byte("input")},
			{Args: []string{"second"}, StdinPipe: true},
			{Args: []string{"second"}, Terminal: &size},
			Bash("true"), Python("pass"),
		} {
			if diff := cmp.Diff(first, spec(c), launch); (diff == "") != c.Plain() {
				t.Errorf("%s: Plain is %v, and the launch of %+v differs from another's by\n%s", name, c.Plain(), c, diff)
			}
		}
	}
}

func TestSpecOrder(t *testing.T) {
	p := Profile{
		Workspace:     "/srv/ws",
		ReadOnlyBinds: []Bind{{Host: "/srv/a"}},
		RequiredBinds: []Bind{{Host: "/srv/b", Guest: "/b"}},
		WritableBinds: []Bind{{Host: "/srv/c"}},
		StubFiles:     []string{"/srv/x.py", "/srv/y.py"},
		TmpSize:       Unlimited,
		ShmSize:       1 << 20,
	}
	s, err := p.Spec([]string{"true"})
	if err != nil {
		t.Fatal(err)
	}
	ops := s.Mounts.Ops
	i := slices.IndexFunc(ops, func(o mounts.Op) bool { _, ok := o.(mounts.Proc); return ok })
	want := []mounts.Op{
		mounts.Tmpfs{Dest: "/dev/shm", Perm: mounts.Perm(0o1777), Size: 1 << 20, Inodes: 1024},
		mounts.Tmpfs{Dest: "/tmp", Perm: mounts.Perm(0o1777)},
		mounts.Bind{Source: "/srv/ws", Dest: "/workspace", Mode: mounts.ReadWrite},
		mounts.Bind{Source: "/srv/a", Dest: "/srv/a", Optional: true},
		mounts.Bind{Source: "/srv/b", Dest: "/b"},
		mounts.Bind{Source: "/srv/c", Dest: "/srv/c", Mode: mounts.ReadWrite},
		mounts.Bind{Source: "/srv/x.py", Dest: "/run/postern/stubs/x.py"},
		mounts.Bind{Source: "/srv/y.py", Dest: "/run/postern/stubs/y.py"},
	}
	if d := cmp.Diff(want, ops[i+2:]); d != "" {
		t.Error(d)
	}
	for _, op := range paths(ops) { // promise 106
		for _, no := range []string{`"/etc"`, `"/home`, `"/root`} {
			if strings.Contains(op, no) && !strings.HasPrefix(op, "dir ") {
				t.Errorf("%s in %s", no, op)
			}
		}
	}
	p = Profile{StubDir: "/srv/stubs"}
	if s, err = p.Spec([]string{"true"}); err != nil {
		t.Fatal(err)
	}
	if got := s.Mounts.Ops[len(s.Mounts.Ops)-1]; got != (mounts.Bind{Source: "/srv/stubs", Dest: "/run/postern/stubs"}) {
		t.Errorf("the stubs are %v", got)
	}
}

// Promise 37: the entry points differ in nothing but what is executed.
func TestSpecIsTheSameForEveryEntryPoint(t *testing.T) {
	p := Profile{}
	a, err := p.CommandSpec("/ws", Bash("x"), Extra{})
	if err != nil {
		t.Fatal(err)
	}
	b, err := p.CommandSpec("/ws", Python("x"), Extra{})
	if err != nil {
		t.Fatal(err)
	}
	b.Path, b.Args = a.Path, a.Args
	b.Mounts.RootSize = a.Mounts.RootSize
	b.Mounts.Ops = b.Mounts.Ops[:len(b.Mounts.Ops)-1] // the code
	if d := cmp.Diff(a, b, cmp.AllowUnexported(nsexec.Namespace{}), cmpopts.IgnoreUnexported(os.File{})); d != "" {
		t.Error(d)
	}
}
