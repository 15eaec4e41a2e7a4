package streamhatch

import (
	"context"
	"fmt"
	"reflect"

	"golang.org/x/sys/unix"

	"github.com/populationgenomics/postern-go/mounts"
	"github.com/populationgenomics/postern-go/nsexec"
	"github.com/populationgenomics/postern-go/seccompbpf"
)

func isZero(v any) bool { return reflect.ValueOf(v).IsZero() }

// start runs the command on a stream.
func (c *Command) start(s *Stream) (process, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	socket, err := s.File()
	if err != nil {
		return nil, err
	}
	if c.adopted != nil {
		return c.startAdopted(socket)
	}
	defer socket.Close()
	spec, err := c.spec()
	if err != nil {
		return nil, err
	}
	spec.Stdin, spec.Stdout = socket, socket
	p, err := nsexec.Start(spec)
	if err != nil {
		return nil, err
	}
	return namespaced{p}, nil
}

// spec is the launch of the command, without its connection.
func (c *Command) spec() (*nsexec.Spec, error) {
	s := &nsexec.Spec{
		Path: c.Args[0], Args: c.Args, Env: c.Env, Dir: c.Dir,
		Stderr: c.Stderr, Files: c.Files,
		Init: true, NewSession: true,
		KeepGroups: c.User == nil,
	}
	if s.Env == nil {
		s.Env = []string{"PATH=" + DefaultPath}
	}
	if s.Dir == "" {
		s.Dir = "/"
	}
	if c.User != nil {
		s.HostUser = &nsexec.HostUser{UID: c.User.UID, GID: &c.User.GID}
	}
	if c.Sandbox != nil {
		return s, c.Sandbox.apply(s)
	}
	// The same user, with the rights it has.
	s.Caps, s.KeepCaps = nsexec.AllCaps, true
	s.Namespaces.PID = nsexec.New
	if c.User != nil || !mayUnshare() {
		s.Namespaces.User = nsexec.New
	}
	return s, nil
}

// mayUnshare reports whether this process can have a PID namespace without
// a user namespace, in which root would lose its rights.
func mayUnshare() bool {
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	return unix.Capget(&header, &data[0]) == nil && data[0].Effective&(1<<unix.CAP_SYS_ADMIN) != 0
}

// procMasks are what root in the kernel could write to without any capability.
var procMasks = []string{
	"sys", "sysrq-trigger", "irq", "bus", "fs", "acpi", "scsi",
	"kcore", "keys", "latency_stats", "timer_list", "sched_debug",
}

const (
	tmpSize  = 64 << 20
	rootSize = 1 << 20
)

func (b *Sandbox) apply(s *nsexec.Spec) error {
	s.Seccomp = []seccompbpf.Filter{seccompbpf.HardenedFilter()}
	s.Namespaces = nsexec.AllNew()
	tree := &mounts.Tree{RootSize: rootSize}
	for _, dir := range []string{"/usr", "/lib", "/lib64", "/bin", "/sbin", "/etc/ld.so.cache"} {
		tree.Ops = append(tree.Ops, mounts.Bind{Source: dir, Dest: dir, Optional: dir != "/usr"})
	}
	tree.Ops = append(tree.Ops,
		mounts.Proc{Dest: "/proc", Masks: procMasks},
		mounts.Dev{Dest: "/dev", Size: rootSize},
		mounts.Tmpfs{Dest: "/tmp", Perm: mounts.Perm(0o1777), Size: tmpSize},
	)
	for _, bind := range b.Binds {
		op := mounts.Bind{Source: bind.Host, Dest: bind.path()}
		if bind.Writable {
			op.Mode = mounts.ReadWrite
		}
		tree.Ops = append(tree.Ops, op)
	}
	s.Mounts = tree
	return nil
}

// namespaced is a command in namespaces of its own.
type namespaced struct{ *nsexec.Process }

// An error is that there is nothing left to signal.
func (p namespaced) terminate() { p.Signal(unix.SIGTERM) }
func (p namespaced) kill()      { p.Signal(unix.SIGKILL) }

func (p namespaced) done() <-chan struct{} { return p.Done() }

func (p namespaced) result() error {
	status, err := p.Wait(context.Background()) // it has ended
	if err == nil && status.ExecErr != 0 {
		err = fmt.Errorf("execute it: %w", status.ExecErr)
	}
	return err
}

// probe starts a command that is not there, in a PID namespace that is.
func probe() error {
	spec, err := Exec("/proc/self/no such program").spec()
	if err != nil {
		return err
	}
	p, err := nsexec.Start(spec)
	if err != nil {
		return err
	}
	<-p.Done()
	return nil
}
