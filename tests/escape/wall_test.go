//go:build linux

package escape

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/populationgenomics/postern-go"
	"github.com/populationgenomics/postern-go/internal/testutil"
	"github.com/populationgenomics/postern-go/internal/testutil/guest"
	"github.com/populationgenomics/postern-go/mounts"
	"github.com/populationgenomics/postern-go/nsexec"
	"golang.org/x/sys/unix"
)

func TestMain(m *testing.M) {
	guest.Main()
	os.Exit(testutil.Main(m))
}

// through is the outcome of an attack that works.
const through = "got through"

// An attack is something a guest tries.
type attack struct {
	name string
	// do is the guest's part. It returns nil if the attack works.
	do func() error
	// blocked are the outcomes that the wall may have: names of errnos, or
	// texts of errors.
	blocked []string
	// layers hold it, each of them alone. Without any of them it works.
	layers []layer
	// rootOnly says that it works for no other user, wall or not: without
	// the layers that one gets the outcome noRights.
	rootOnly bool
	noRights string
	// prepare changes the profile first, for both launches.
	prepare func(*testing.T, *postern.Profile)
	// alter changes both launches.
	alter func(*testing.T, *nsexec.Spec)
}

// A layer is a part of the wall that can be taken away.
type layer struct {
	name string
	off  func(*nsexec.Spec)
}

var (
	seccomp    = layer{"seccomp", func(s *nsexec.Spec) { s.Seccomp = nil }}
	caps       = layer{"no capabilities", func(s *nsexec.Spec) { s.Caps = everyCap }}
	masks      = layer{"masks on proc", func(s *nsexec.Spec) { edit(s, func(p *mounts.Proc) { p.Masks = nil }) }}
	fixedNodes = layer{"fixed device nodes", func(s *nsexec.Spec) { edit(s, func(d *mounts.Dev) { d.FixedNodes = false }) }}
	netNS      = layer{"network namespace", func(s *nsexec.Spec) { s.Namespaces.Net = nsexec.Share }}
	session    = layer{"new session", func(s *nsexec.Spec) { s.NewSession = false }}
)

// everyCap has the capabilities this kernel knows.
var everyCap = sync.OnceValue(func() (set nsexec.CapSet) {
	for i := range 64 {
		if r, err := unix.PrctlRetInt(unix.PR_CAPBSET_READ, uintptr(i), 0, 0, 0); err == nil && r >= 0 {
			set |= 1 << i
		}
	}
	return set
})()

// edit changes all mount operations of one type.
func edit[T mounts.Op](s *nsexec.Spec, change func(*T)) {
	tree := *s.Mounts
	tree.Ops = slices.Clone(tree.Ops)
	for i, op := range tree.Ops {
		if o, ok := op.(T); ok {
			change(&o)
			tree.Ops[i] = any(o).(mounts.Op)
		}
	}
	s.Mounts = &tree
}

// attacks registers the guests' parts; call it for a package variable.
func attacks(group string, list ...attack) []attack {
	for _, a := range list {
		probe(group+"/"+a.name, a.do)
	}
	return list
}

// probe registers a function of a guest whose outcome is printed.
func probe(name string, do func() error) string {
	return guest.Probe(name, func([]string) { fmt.Println(outcome(do())) })
}

func outcome(err error) string {
	var errno unix.Errno
	switch {
	case err == nil:
		return through
	case errors.As(err, &errno):
		return errnoName(errno)
	}
	return err.Error()
}

func errnoName(e unix.Errno) string {
	if n := unix.ErrnoName(e); n != "" {
		return n
	}
	return fmt.Sprintf("errno %d", int(e))
}

// run makes the attacks of a group.
func run(t *testing.T, group string, list []attack) {
	testutil.EachUser(t, func(t *testing.T) {
		for _, a := range list {
			t.Run(strings.ReplaceAll(a.name, "/", "|"), func(t *testing.T) { a.run(t, group) })
		}
	})
}

func (a attack) run(t *testing.T, group string) {
	p := wall(t)
	if a.prepare != nil {
		a.prepare(t, &p)
	}
	attempt := func(off ...layer) string {
		s := spec(t, p, group+"/"+a.name)
		if a.alter != nil {
			a.alter(t, s)
		}
		for _, l := range off {
			l.off(s)
		}
		return ended(guest.Run(t, s))
	}
	if got := attempt(); !slices.Contains(a.blocked, got) {
		t.Errorf("behind the wall: %s, want one of %q", got, a.blocked)
	}
	if len(a.layers) > 1 {
		for i, l := range a.layers {
			if got := attempt(slices.Delete(slices.Clone(a.layers), i, i+1)...); got == through {
				t.Errorf("with only %q to hold it: %s", l.name, got)
			}
		}
	}
	want := through
	if a.rootOnly && os.Geteuid() != 0 {
		want = a.noRights
	}
	if got := attempt(a.layers...); got != want {
		t.Errorf("without the layers that hold it: %s, want %s; this attack proves nothing", got, want)
	}
}

// ended is what a guest printed, and how it ended if not well.
func ended(r guest.Result) string {
	s := strings.TrimSpace(r.Out[:min(len(r.Out), 16<<10)])
	if r.ExitCode != 0 {
		s += fmt.Sprintf(" (exit code %d)", r.ExitCode)
	}
	return s
}

// guestSelf is where a guest finds the test program.
const guestSelf = "/probe"

// wall is the default profile, with the test program in it.
func wall(t testing.TB) postern.Profile {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return postern.Profile{
		Workspace:     workspaceDir(t),
		RequiredBinds: []postern.Bind{{Host: exe, Guest: guestSelf}},
	}
}

// workspaceDir is a directory for any guest to write to, as a sandbox makes it.
func workspaceDir(t testing.TB) string {
	t.Helper()
	dir := t.TempDir()
	if err := os.Chmod(dir, 0o777|os.ModeSticky); err != nil {
		t.Fatal(err)
	}
	return dir
}

// spec is the launch of a probe.
func spec(t testing.TB, p postern.Profile, name string, args ...string) *nsexec.Spec {
	t.Helper()
	s, err := p.Spec(append([]string{guestSelf}, args...))
	if err != nil {
		t.Fatal(err)
	}
	s.Env = append(s.Env, guest.ProbeEnv(name))
	return s
}

// inGuest returns what a probe prints behind the wall, changed by what is off.
func inGuest(t testing.TB, p postern.Profile, name string, args []string, off ...layer) string {
	t.Helper()
	s := spec(t, p, name, args...)
	for _, l := range off {
		l.off(s)
	}
	return ended(guest.Run(t, s))
}

// onHost returns what a probe prints without any wall.
func onHost(t testing.TB, name string, args ...string) string {
	t.Helper()
	out, err := hostCommand(name, args...).Output()
	if err != nil {
		t.Fatalf("probe %s on the host: %v", name, err)
	}
	return strings.TrimSpace(string(out))
}

func hostCommand(name string, args ...string) *exec.Cmd {
	cmd := exec.Command("/proc/self/exe", args...)
	cmd.Env = append(os.Environ(), guest.ProbeEnv(name))
	cmd.Stderr = os.Stderr
	return cmd
}

// isRoot reports whether the kernel takes guests of this test for root.
func isRoot() bool { return os.Geteuid() == 0 }

// errnoOf returns the errno of a raw system call.
func errnoOf(nr uintptr, args ...uintptr) error {
	var a [6]uintptr
	copy(a[:], args)
	if _, _, e := unix.Syscall6(nr, a[0], a[1], a[2], a[3], a[4], a[5]); e != 0 {
		return e
	}
	return nil
}

// lines splits an outcome.
func lines(s string) []string {
	return strings.FieldsFunc(s, func(r rune) bool { return r == '\n' })
}

// profileHere is wall for a host that is no test, without a workspace.
func profileHere() postern.Profile {
	exe, err := os.Executable()
	if err != nil {
		panic(err)
	}
	return postern.Profile{RequiredBinds: []postern.Bind{{Host: exe, Guest: guestSelf}}}
}
