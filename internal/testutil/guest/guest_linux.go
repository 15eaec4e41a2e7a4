package guest

import (
	"bytes"
	"context"
	"io"
	"os"
	"strings"
	"sync"
	"testing"

	"github.com/populationgenomics/postern-go/mounts"
	"github.com/populationgenomics/postern-go/nsexec"
)

// System lists the binds a program of the host needs to run in a guest.
func System() []mounts.Op {
	ops := []mounts.Op{mounts.Bind{Source: "/usr", Dest: "/usr"}}
	for _, dir := range []string{"/lib", "/lib64", "/bin", "/sbin", "/etc/ld.so.cache"} {
		ops = append(ops, mounts.Bind{Source: dir, Dest: dir, Optional: true})
	}
	return ops
}

// Spec describes a guest with all namespaces of its own, the host's programs,
// /proc, /dev and /tmp, and then ops. It runs args, found along the usual PATH.
func Spec(args []string, ops ...mounts.Op) *nsexec.Spec {
	id := uint32(65534)
	all := append(System(), mounts.Proc{Dest: "/proc"}, mounts.Dev{Dest: "/dev"}, mounts.Tmpfs{Dest: "/tmp", Perm: mounts.Perm(0o1777)})
	return &nsexec.Spec{
		Path: args[0], Args: args, Env: []string{"PATH=/usr/bin:/bin:/usr/sbin:/sbin"}, Dir: "/",
		Namespaces: nsexec.AllNew(), UID: &id, GID: &id, Init: true, NewSession: true,
		Mounts: &mounts.Tree{Ops: append(all, ops...)},
	}
}

// Shell is Spec for a shell script.
func Shell(script string, ops ...mounts.Op) *nsexec.Spec {
	return Spec([]string{"sh", "-c", script}, ops...)
}

// A Result is what a guest left.
type Result struct {
	nsexec.Status
	Out string // what it wrote to standard output and error
}

// Run runs a guest to its end. Its output goes to the result unless the spec
// says otherwise.
func Run(t testing.TB, s *nsexec.Spec) Result {
	t.Helper()
	r, err := Try(s)
	if err != nil {
		t.Fatalf("%v", err)
	}
	return r
}

// Try is Run and returns the error of a launch that fails.
func Try(s *nsexec.Spec) (Result, error) {
	c := *s
	out, w, err := os.Pipe()
	if err != nil {
		return Result{}, err
	}
	defer out.Close()
	if c.Stdout == nil {
		c.Stdout = w
	}
	if c.Stderr == nil {
		c.Stderr = w
	}
	p, err := nsexec.Start(&c)
	w.Close()
	if err != nil {
		return Result{}, err
	}
	var b bytes.Buffer
	if _, err := io.Copy(&b, out); err != nil {
		return Result{}, err
	}
	st, err := p.Wait(context.Background())
	return Result{st, b.String()}, err
}

// Output returns what a shell script prints in a guest, which must succeed.
func Output(t testing.TB, script string, ops ...mounts.Op) string {
	t.Helper()
	return MustOutput(t, Shell(script, ops...))
}

// MustOutput returns what a guest prints, which must succeed.
func MustOutput(t testing.TB, s *nsexec.Spec) string {
	t.Helper()
	r := Run(t, s)
	if r.ExitCode != 0 {
		t.Fatalf("%q ended with %d:\n%s", s.Args, r.ExitCode, r.Out)
	}
	return strings.TrimSuffix(r.Out, "\n")
}

// probeEnv names the probe a process is to run, and probePath is where a guest
// finds the test program.
const (
	probeEnv  = "POSTERN_TEST_PROBE"
	probePath = "/probe"
)

var probes sync.Map // name -> func(args []string)

// Probe registers a function of the test program for a process to run. It is
// for package variables: the process registers the same ones.
func Probe(name string, f func(args []string)) string {
	probes.Store(name, f)
	return name
}

// Main runs the probe this process was started for, if any, and then exits.
// Call it first in TestMain.
func Main() {
	name, ok := os.LookupEnv(probeEnv)
	if !ok {
		return
	}
	f, ok := probes.Load(name)
	if !ok {
		println("no probe", name)
		os.Exit(99)
	}
	f.(func([]string))(os.Args[1:])
	os.Exit(0)
}

// ProbeEnv returns the environment entry that makes the test program run a
// probe.
func ProbeEnv(name string) string { return probeEnv + "=" + name }

// ProbeSpec is Spec for a probe.
func ProbeSpec(t testing.TB, name string, args []string, ops ...mounts.Op) *nsexec.Spec {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	s := Spec(append([]string{probePath}, args...), append(ops, mounts.Bind{Source: exe, Dest: probePath})...)
	s.Env = append(s.Env, ProbeEnv(name))
	return s
}
