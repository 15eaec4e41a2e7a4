//go:build linux

package bwrapflags

import (
	"fmt"
	"slices"
	"strings"

	"github.com/populationgenomics/postern-go/mounts"
	"github.com/populationgenomics/postern-go/nsexec"
)

// Parse reads a command line: the words after the program's name, and the
// environment, in which --setenv and its kin have their effect.
//
// What cannot be launched returns an [*Error]. The command is returned with
// it, for the warnings that came before.
func Parse(words, env []string, fds FDs, facts Facts) (*Command, error) {
	p := &parser{
		cmd:   &Command{sources: map[string]string{}, dests: map[string]string{}},
		fds:   fds,
		facts: facts,
		env:   usable(env),
		tree:  &mounts.Tree{Ops: make([]mounts.Op, 0, len(words)/2), FollowHost: true, PrivateParents: true},
	}
	p.launcher = &nsexec.Launcher{Comm: "bwrap", FailStatus: 1, ExecStatus: 1, Linger: true, SeccompTwice: true}
	p.cmd.Spec = nsexec.Spec{Launcher: p.launcher, Mounts: p.tree, KeepFDs: true, KeepGroups: true, SignalMask: true}
	if facts.UID == 0 {
		p.caps = facts.Caps
	}
	if len(words) == 0 {
		return p.cmd, p.usage()
	}
	rest, err := p.words(words, false)
	if err == nil && p.cmd.Action != Help && p.cmd.Action != ShowVersion && p.cmd.Action != Kernel {
		err = p.finish(rest)
	}
	return p.cmd, err
}

// A parser is the state of a command line half read.
type parser struct {
	cmd      *Command
	launcher *nsexec.Launcher
	tree     *mounts.Tree
	fds      FDs
	facts    Facts
	env      environ

	user, userTry, pid, net, ipc, uts, cgroup, cgroupTry bool

	uid, gid    *int
	hostname    *string
	dir         *string
	argv0       *string
	asPID1      bool
	caps        nsexec.CapSet
	capsChanged bool
	needsDevpts bool

	perms  *uint32
	size   *int64
	layers []string

	seccomp    *int
	seccompAdd []int
	late       []late
	follow     bool // --follow-dest was given
}

// late is what has to wait until the whole command line is known to be good.
type late func() error

func (p *parser) failf(format string, args ...any) error {
	return &Error{Message: Message{Text: fmt.Sprintf(format, args...), Prefix: Prefix(p.cmd.LevelPrefix, LevelError)}}
}

func (p *parser) usage() error {
	return &Error{Usage: true, Message: Message{Text: Usage(p.facts.Program)}}
}

func (p *parser) warnf(format string, args ...any) {
	p.cmd.Warnings = append(p.cmd.Warnings, Message{fmt.Sprintf(format, args...), Prefix(p.cmd.LevelPrefix, LevelWarning)})
}

// words reads options up to the command, and returns that.
func (p *parser) words(words []string, inFile bool) ([]string, error) {
	for len(words) > 0 {
		word := words[0]
		if word == "--" {
			words = words[1:]
			break
		}
		if !strings.HasPrefix(word, "-") {
			break
		}
		opt, ok := options()[word]
		switch {
		case strings.HasPrefix(word, "--debug-opt="):
			if err := p.debug(strings.TrimPrefix(word, "--debug-opt=")); err != nil {
				return nil, err
			}
		case !ok:
			return nil, p.failf("Unknown option %s", word)
		case word == "--args" && inFile:
			return nil, p.failf("--args not supported in arguments file")
		case len(words)-1 < opt.operands:
			return nil, p.failf("%s", opt.tooFew(word))
		default:
			operands := words[1 : 1+opt.operands]
			if err := opt.apply(p, word, operands); err != nil {
				return nil, err
			}
		}
		if p.cmd.Action == Help || p.cmd.Action == ShowVersion || p.cmd.Action == Kernel {
			return nil, nil
		}
		if err := p.pending(word); err != nil {
			return nil, err
		}
		words = words[1+opt.operands:]
	}
	if len(p.layers) > 0 {
		return nil, p.failf("%s", layersPending)
	}
	return words, nil
}

const layersPending = "--overlay-src must be followed by another --overlay-src or one of --overlay, --tmp-overlay, or --ro-overlay"

// pending checks that an option that is about the next one was followed by one
// it can be about.
func (p *parser) pending(word string) error {
	switch {
	case len(p.layers) > 0 && word != "--overlay-src":
		return p.failf("%s", layersPending)
	case p.perms != nil && word != "--perms" && word != "--size":
		return p.failf("--perms must be followed by an option that creates a file")
	case p.size != nil && word != "--size" && word != "--perms":
		return p.failf("--size must be followed by --tmpfs")
	}
	return nil
}

func (p *parser) debug(value string) error {
	switch value {
	case "print-assumed-kernel":
		p.cmd.Action = Kernel
	case "force-openat-fallback", "force-mount-setattr-fallback":
		// There is only one way here, and no weaker one to force.
	default:
		return p.failf("Unknown --debug-opt value: %s", value)
	}
	return nil
}

// finish checks what concerns several options and completes the command.
func (p *parser) finish(rest []string) error {
	c, x := p.cmd, p.launcher
	f := p.facts
	disable := c.Spec.DisableUserns
	switch {
	case c.UserNSBlockFD != nil && !p.user:
		return p.failf("--userns-block-fd requires --unshare-user")
	case c.UserNSBlockFD != nil && c.InfoFD == nil:
		return p.failf("--userns-block-fd requires --info-fd")
	case c.UserNS != nil && p.user:
		return p.failf("--userns is not compatible with --unshare-user")
	case c.UserNS != nil && p.userTry:
		return p.failf("--userns is not compatible with --unshare-user-try")
	case disable && !p.user:
		return p.failf("--disable-userns requires --unshare-user")
	case disable && c.UserNSBlockFD != nil:
		return p.failf("--disable-userns is not compatible with --userns-block-fd")
	}
	if f.UID != 0 && c.UserNS == nil || !p.user && p.userTry && f.UserNamespaces() {
		p.user = true
	}
	if len(rest) == 0 {
		return p.usage()
	}
	switch {
	case !p.user && c.UserNS == nil && p.uid != nil && *p.uid != int(f.UID):
		return p.failf("Specifying --uid requires --unshare-user or --userns")
	case !p.user && c.UserNS == nil && p.gid != nil && *p.gid != int(f.GID):
		return p.failf("Specifying --gid requires --unshare-user or --userns")
	case p.hostname != nil && !p.uts:
		return p.failf("Specifying --hostname requires --unshare-uts")
	case p.asPID1 && !p.pid:
		return p.failf("Specifying --as-pid-1 requires --unshare-pid")
	case p.asPID1 && len(x.Locks) > 0:
		return p.failf("Specifying --as-pid-1 and --lock-file is not permitted")
	case p.cgroup && !f.CgroupNamespaces():
		return p.failf("Cannot create new cgroup namespace because the kernel does not support it")
	}
	p.namespaces()
	p.identity()
	p.capabilities()
	p.process(rest)
	for _, l := range p.late {
		if err := l(); err != nil {
			return err
		}
	}
	x.Prefix = Prefix(c.LevelPrefix, LevelError)
	x.ExecPrefix = x.Prefix + "execvp "
	return p.filters()
}

func (p *parser) namespaces() {
	n := &p.cmd.Spec.Namespaces
	n.Mount = nsexec.New
	for _, t := range []struct {
		is bool
		ns *nsexec.Namespace
	}{{p.user, &n.User}, {p.pid, &n.PID}, {p.net, &n.Net}, {p.ipc, &n.IPC}, {p.uts, &n.UTS},
		{p.cgroup || p.cgroupTry && p.facts.CgroupNamespaces(), &n.Cgroup}} {
		if t.is {
			*t.ns = nsexec.New
		}
	}
	own := p.pid || p.cmd.PIDNS != nil
	for i, op := range p.tree.Ops {
		if proc, ok := op.(mounts.Proc); ok {
			proc.Host = !own
			proc.Masks = p.facts.ProcWritable()
			p.tree.Ops[i] = proc
		}
	}
}

func (p *parser) identity() {
	s := &p.cmd.Spec
	s.UID, s.GID = id(p.uid, p.facts.UID), id(p.gid, p.facts.GID)
	s.Hostname = p.hostname
}

// id returns an ID that differs from the caller's own, or nil.
func id(n *int, own uint32) *uint32 {
	if n == nil || uint32(*n) == own {
		return nil
	}
	v := uint32(*n)
	return &v
}

// capabilities settles what is kept. A caller that is root keeps what it has
// unless told otherwise.
func (p *parser) capabilities() {
	s := &p.cmd.Spec
	fresh := p.user || p.cmd.UserNS != nil
	existing := nsexec.CapSet(1)<<(p.facts.LastCap+1) - 1
	if !fresh {
		existing &= p.facts.Caps
	}
	s.Caps = p.caps & existing
	if p.facts.UID == 0 && !p.capsChanged {
		s.KeepCaps = true
		if !fresh {
			s.Caps = nsexec.AllCaps
		}
	}
	// Bubblewrap needs root to be mapped for devpts, so it sets /dev up as root
	// and puts the command in a second user namespace. Here that is only done
	// to keep capabilities of the command from reaching the first.
	other := s.UID != nil && *s.UID != 0 || s.UID == nil && p.facts.UID != 0 ||
		s.GID != nil && *s.GID != 0 || s.GID == nil && p.facts.GID != 0
	p.launcher.InnerUser = p.user && p.needsDevpts && s.Caps != 0 && other && p.cmd.UserNSBlockFD == nil
}

func (p *parser) process(command []string) {
	s, x := &p.cmd.Spec, p.launcher
	s.Init = p.pid && !p.asPID1
	if p.asPID1 {
		x.Sync = nil // nobody stays who could hold them; they pass to the command
	}
	s.Path = command[0]
	s.Args = slices.Clone(command)
	if p.argv0 != nil {
		s.Args[0] = *p.argv0
	}
	home, _ := p.env.get("HOME")
	s.Dir, s.DirFallback = p.startDir(home)
	s.Env = p.env
	s.SetPWD = true
}

// startDir is where the command starts: where it is told to, or else in the
// caller's directory, its home or the root, whichever exists first.
func (p *parser) startDir(home string) (dir string, fallback []string) {
	if p.dir != nil {
		return *p.dir, nil
	}
	var dirs []string
	for _, d := range []string{p.facts.Dir, home, "/"} {
		if d != "" {
			dirs = append(dirs, d)
		}
	}
	return dirs[0], dirs[1:]
}
