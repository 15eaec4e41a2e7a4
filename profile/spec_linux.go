package profile

import (
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/populationgenomics/postern-go/mounts"
	"github.com/populationgenomics/postern-go/nsexec"
	"github.com/populationgenomics/postern-go/pidone"
	"github.com/populationgenomics/postern-go/seccompbpf"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
)

// masks are the parts of /proc a guest can read at most. For a guest whose
// kernel user is root some would be writable whatever capabilities it lacks.
var masks = []string{"sys", "sysrq-trigger", "irq", "bus", "fs", "acpi", "scsi", "pressure"}

// hidden are those it cannot even read, as they tell about the host: keys
// lists the host program's, and kpage* what is in the machine's memory.
var hidden = []string{
	"kcore", "keys", "key-users", "latency_stats", "timer_list", "sched_debug",
	"kpagecount", "kpageflags", "kpagecgroup", "vmallocinfo", "slabinfo",
}

const (
	rootSize = 16 << 20 // of the tmpfs that carries the guest's root, in bytes
	devSize  = 1 << 20

	pythonMain = "/run/postern/python/main.py"
	pythonBoot = "/run/postern/boot"
)

// Spec returns the launch that a run of args makes, without hatches. A profile
// without a Workspace has an empty one in memory. What the launch finds on the
// host is left to the caller: see [Profile.ShareWorkspace] and [Overlay.Claim].
//
// The error is a [*FieldError], or several joined.
func (p Profile) Spec(args []string) (*nsexec.Spec, error) {
	cmd := Command{Args: args}
	if err := errors.Join(p.Validate(), cmd.Validate()); err != nil {
		return nil, err
	}
	workspace := ""
	if p.Workspace != "" {
		var err error
		if workspace, err = filepath.Abs(p.Workspace); err != nil {
			return nil, &FieldError{"Profile.Workspace", "cannot be made absolute: " + err.Error(), err}
		}
	}
	return p.CommandSpec(workspace, cmd, Extra{})
}

// An Extra is what a guest gets besides all that its profile says, such as
// the way to a hatch.
type Extra struct {
	Env    []string    // "NAME=value", instead of others of the same name
	Mounts []mounts.Op // made last, and so above all others
}

// CommandSpec is Spec for a command and a workspace, a host directory or one
// in memory if empty. Profile and command must be valid. Input, StdinPipe and
// the size of the terminal are left to the caller, who has the descriptors.
func (p Profile) CommandSpec(workspace string, cmd Command, extra Extra) (*nsexec.Spec, error) {
	s := &nsexec.Spec{
		Dir:        GuestWorkspace,
		Env:        p.CommandEnv(cmd, extra),
		HostUser:   p.HostUser(),
		Namespaces: nsexec.AllNew(),
		UID:        p.GuestUID.number(),
		GID:        p.GuestGID.number(),
		Init:       true,
		NewSession: true,
		Terminal:   cmd.Terminal != nil,
	}
	limits := p.Limits
	if cmd.Python != "" {
		s.Args = append([]string{p.python(), "-u", pythonMain}, cmd.Args...)
		limits.AddressSpace = Unlimited // see pythonFiles
	} else {
		s.Args = cmd.Args
	}
	s.Path = s.Args[0]
	s.Limits = limits.list()

	root := int64(rootSize)
	s.Mounts = &mounts.Tree{}
	for _, part := range [][]mounts.Op{p.system(), p.etc(s), p.private(workspace), p.binds(), p.pythonFiles(cmd), extra.Mounts} {
		s.Mounts.Ops = append(s.Mounts.Ops, part...)
	}
	s.Mounts.RootSize = root + int64(len(cmd.Python))
	s.Mounts.RootInodes = inodes(s.Mounts.RootSize)

	var err error
	if s.Seccomp, err = p.filters(); err != nil {
		return nil, err
	}
	if s.Namespaces.Net, err = p.Network.namespace(); err != nil {
		return nil, err
	}
	return s, nil
}

// HostUser returns the user of the host that a launch runs as, or nil if that
// is the caller's own: HostUID is not set, or the caller is not root.
func (p Profile) HostUser() *nsexec.HostUser {
	if p.HostUID == nil || os.Geteuid() != 0 {
		return nil
	}
	u := &nsexec.HostUser{UID: *p.HostUID, GID: p.HostGID}
	if u.GID == nil {
		u.GID = p.GuestGID.number()
	}
	return u
}

func (p Profile) filters() ([]seccompbpf.Filter, error) {
	if p.NoSeccomp {
		return nil, nil
	}
	if p.Seccomp == nil {
		return []seccompbpf.Filter{seccompbpf.HardenedFilter()}, nil
	}
	f, err := p.compile()
	return []seccompbpf.Filter{f}, err
}

func (n Network) namespace() (nsexec.Namespace, error) {
	switch {
	case n.File != nil:
		return nsexec.Join(n.File), nil
	case n.Name != "":
		h, err := netns.GetFromName(n.Name)
		if err != nil {
			return nsexec.Share, &FieldError{"Profile.Network.Name", fmt.Sprintf("%q cannot be opened: %v", n.Name, err), err}
		}
		return nsexec.Join(os.NewFile(uintptr(h), "network namespace "+n.Name)), nil
	}
	return nsexec.New, nil
}

// CommandEnv returns the guest's whole environment.
func (p Profile) CommandEnv(cmd Command, extra Extra) []string {
	var env []string
	set := func(name, value string) {
		i := slices.IndexFunc(env, func(e string) bool { return strings.HasPrefix(e, name+"=") })
		if i < 0 {
			env = append(env, name+"="+value)
		} else {
			env[i] = name + "=" + value
		}
	}
	set("PATH", DefaultPath)
	if p.Etc != nil {
		set("HOME", p.Etc.home())
	}
	if cmd.Terminal != nil {
		set("TERM", "xterm")
	}
	for _, e := range append(slices.Clip(p.Env), cmd.Env...) {
		name, value, _ := strings.Cut(e, "=")
		set(name, value)
	}
	set("PWD", GuestWorkspace)
	pythonPath := func(dir string) {
		i := slices.IndexFunc(env, func(e string) bool { return strings.HasPrefix(e, "PYTHONPATH=") })
		if i < 0 {
			env = append(env, "PYTHONPATH="+dir)
			return
		}
		_, prior, _ := strings.Cut(env[i], "=")
		env[i] = "PYTHONPATH=" + strings.TrimSuffix(dir+":"+prior, ":")
	}
	if p.StubDir != "" || len(p.StubFiles) > 0 {
		pythonPath(GuestStubs)
	}
	if p.bootsPython(cmd) {
		pythonPath(pythonBoot)
	}
	for _, e := range extra.Env {
		name, value, _ := strings.Cut(e, "=")
		set(name, value)
	}
	return env
}

// system is what the guest has of the host or of a root of its own.
func (p Profile) system() []mounts.Op {
	if o := p.Overlay; o != nil {
		op := mounts.Overlay{Dest: "/", Lower: o.Lower, Size: OrDefault(o.Size, DefaultTmpSize)}
		if o.Upper != "" {
			op.Upper, op.Work, op.Size = o.upper(), o.work(), 0
		}
		return []mounts.Op{op}
	}
	var ops []mounts.Op
	for _, dir := range []string{"/usr", "/lib", "/lib64", "/bin", "/sbin"} {
		ops = append(ops, mounts.Bind{Source: p.rootPath(dir), Dest: dir, Optional: dir != "/usr"})
	}
	const cache = "/etc/ld.so.cache"
	return append(ops, mounts.Dir{Dest: "/etc"}, mounts.Bind{Source: p.rootPath(cache), Dest: cache, Optional: true})
}

// rootPath returns where on the host a file of the rootfs is. Links in the
// rootfs mean what they would mean if it were the root: one to /usr/lib is no
// way to the host's.
func (p Profile) rootPath(name string) string {
	if p.Rootfs == "" {
		return name
	}
	root, err := filepath.Abs(p.Rootfs)
	if err != nil {
		root = p.Rootfs
	}
	const maxLinks = 40
	done, rest, links := "/", strings.Split(strings.Trim(name, "/"), "/"), 0
	for len(rest) > 0 {
		next := filepath.Join(done, rest[0]) // never above /
		rest = rest[1:]
		target, err := os.Readlink(root + next)
		if err != nil || links == maxLinks {
			done = next
			continue
		}
		links++
		if filepath.IsAbs(target) {
			done = "/"
		}
		rest = append(strings.Split(strings.Trim(target, "/"), "/"), rest...)
	}
	return filepath.Join(root, done)
}

func (e *Etc) home() string {
	if e.Home == "" {
		return GuestWorkspace
	}
	return e.Home
}

// etc is the synthetic /etc.
func (p Profile) etc(s *nsexec.Spec) []mounts.Op {
	e := p.Etc
	if e == nil {
		return nil
	}
	user := e.User
	if user == "" {
		user = "guest"
	}
	uid, gid := uint32(os.Geteuid()), uint32(os.Getegid())
	if s.HostUser != nil {
		uid = s.HostUser.UID
		if s.HostUser.GID != nil {
			gid = *s.HostUser.GID
		}
	}
	if s.UID != nil {
		uid = *s.UID
	}
	if s.GID != nil {
		gid = *s.GID
	}
	const noLogin = "/usr/sbin/nologin"
	passwd := fmt.Sprintf("%s:x:%d:%d::%s:/bin/sh\n", user, uid, gid, e.home())
	group := fmt.Sprintf("%s:x:%d:\n", user, gid)
	for _, o := range []struct {
		name string
		id   uint32
		home string
	}{{"root", 0, "/root"}, {"nobody", nobody, "/nonexistent"}} {
		if uid != o.id && user != o.name {
			passwd += fmt.Sprintf("%s:x:%d:%d::%s:%s\n", o.name, o.id, o.id, o.home, noLogin)
		}
		if gid != o.id && user != o.name {
			group += fmt.Sprintf("%s:x:%d:\n", strings.Replace(o.name, "nobody", "nogroup", 1), o.id)
		}
	}
	hosts := "127.0.0.1 localhost\n::1 localhost\n"
	if name, err := os.Hostname(); err == nil && name != "localhost" {
		hosts += "127.0.1.1 " + name + "\n"
	}
	file := func(name, data string) mounts.Op {
		return mounts.File{Dest: "/etc/" + name, Data: data, Perm: mounts.Perm(0o444)}
	}
	ops := []mounts.Op{
		file("passwd", passwd), file("group", group), file("hosts", hosts),
		file("nsswitch.conf", "passwd: files\ngroup: files\nhosts: files dns\n"),
	}
	if e.TimeZone != "" {
		ops = append(ops, mounts.Symlink{Target: "/usr/share/zoneinfo/" + e.TimeZone, Dest: "/etc/localtime"})
	}
	return ops
}

// private is what belongs to the guest alone, and the workspace.
func (p Profile) private(workspace string) []mounts.Op {
	memory := func(dest string, size int64) mounts.Op {
		return mounts.Tmpfs{Dest: dest, Perm: mounts.Perm(0o1777), Size: size, Inodes: inodes(size)}
	}
	ops := []mounts.Op{
		mounts.Proc{Dest: "/proc", Masks: masks, Hidden: hidden},
		mounts.Dev{Dest: "/dev", Size: devSize, Inodes: inodes(devSize), FixedNodes: true},
		memory("/dev/shm", OrDefault(p.ShmSize, DefaultShmSize)),
		memory("/tmp", OrDefault(p.TmpSize, DefaultTmpSize)),
	}
	if workspace == "" {
		return append(ops, memory(GuestWorkspace, OrDefault(p.WorkspaceSize, DefaultTmpSize)))
	}
	return append(ops, mounts.Bind{Source: workspace, Dest: GuestWorkspace, Mode: mounts.ReadWrite})
}

// inodes bounds the files in a file system of so many bytes: empty ones take
// memory too.
func inodes(size int64) int64 {
	if size == 0 {
		return 0
	}
	return max(size/4096, 1024)
}

// binds come after everything they may lie below.
func (p Profile) binds() []mounts.Op {
	var ops []mounts.Op
	for _, b := range p.ReadOnlyBinds {
		ops = append(ops, mounts.Bind{Source: b.Host, Dest: b.dest(), Optional: true})
	}
	for _, b := range p.RequiredBinds {
		ops = append(ops, mounts.Bind{Source: b.Host, Dest: b.dest()})
	}
	for _, b := range p.WritableBinds {
		ops = append(ops, mounts.Bind{Source: b.Host, Dest: b.dest(), Mode: mounts.ReadWrite})
	}
	if p.StubDir != "" {
		ops = append(ops, mounts.Bind{Source: p.StubDir, Dest: GuestStubs})
	}
	for _, f := range p.StubFiles {
		ops = append(ops, mounts.Bind{Source: f, Dest: GuestStubs + "/" + filepath.Base(f)})
	}
	return ops
}

// list returns the limits to set.
func (l Limits) list() []pidone.Limit {
	var out []pidone.Limit
	set := func(resource int, n int64) {
		if n > 0 {
			out = append(out, pidone.Limit{Resource: resource, Soft: uint64(n), Hard: uint64(n)})
		}
	}
	set(unix.RLIMIT_NPROC, OrDefault(l.Processes, DefaultProcesses))
	set(unix.RLIMIT_AS, l.AddressSpace)
	set(unix.RLIMIT_NOFILE, l.OpenFiles)
	set(unix.RLIMIT_FSIZE, l.FileSize)
	set(unix.RLIMIT_STACK, l.Stack)
	if l.CPU > 0 {
		// SIGXCPU at the soft limit, SIGKILL at the hard one.
		soft := uint64(l.CPU / time.Second)
		out = append(out, pidone.Limit{Resource: unix.RLIMIT_CPU, Soft: soft, Hard: min(soft, math.MaxUint64-1) + 1})
	}
	return out
}
