//go:build linux

package bwrapflags

import (
	"fmt"
	"io/fs"
	"slices"
	"strconv"
	"strings"

	"github.com/populationgenomics/postern-go/mounts"
	"github.com/populationgenomics/postern-go/nsexec"
	"github.com/populationgenomics/postern-go/pidone"
)

// A Line is a command line of bwrap, without the program's name.
type Line struct {
	Words []string
	// Data is what has to be readable from the descriptors the words name.
	Data map[int]string
}

// A FormError says what of a Spec no command line of bwrap can express.
type FormError struct{ Field, Reason string }

func (e *FormError) Error() string {
	return "bwrapflags: Spec." + e.Field + " has no form as a bwrap command line: " + e.Reason
}

// Format writes the command line that launches s for a caller with these
// facts. Descriptors for data are numbered from firstFD. Where it returns one,
// parsing it with the same facts yields s again, in an empty or any other
// environment.
//
// It returns a [*FormError] for what bwrap cannot do.
func Format(s *nsexec.Spec, facts Facts, firstFD int) (*Line, error) {
	f := &formatter{spec: s, facts: facts, next: firstFD, line: &Line{Data: map[int]string{}}}
	for _, part := range []func() error{f.refuse, f.namespaces, f.identity, f.caps, f.environment, f.mounts, f.process, f.launcher} {
		if err := part(); err != nil {
			return nil, err
		}
	}
	f.add("--")
	f.add(s.Path)
	f.add(s.Args[1:]...)
	return f.line, nil
}

type formatter struct {
	spec  *nsexec.Spec
	facts Facts
	line  *Line
	next  int
}

func (f *formatter) add(words ...string) { f.line.Words = append(f.line.Words, words...) }

func (f *formatter) flag(is bool, word string) {
	if is {
		f.add(word)
	}
}

func (f *formatter) data(word, data string, more ...string) {
	f.line.Data[f.next] = data
	f.add(append([]string{word, strconv.Itoa(f.next)}, more...)...)
	f.next++
}

func noForm(field, format string, args ...any) error {
	return &FormError{field, fmt.Sprintf(format, args...)}
}

func (f *formatter) refuse() error {
	s := f.spec
	for _, c := range []struct {
		is            bool
		field, reason string
	}{
		{s.Stdin != nil || s.Stdout != nil || s.Stderr != nil, "Stdin", "standard streams are the caller's"},
		{len(s.Files) > 0, "Files", "the caller's descriptors are inherited"},
		{len(s.StageFiles) > 0, "StageFiles", "descriptors are named by their numbers"},
		{!s.KeepFDs, "KeepFDs", "the caller's descriptors are inherited"},
		{!s.KeepGroups, "KeepGroups", "supplementary groups are kept"},
		{!s.SetPWD, "SetPWD", "PWD is always set"},
		{!s.SignalMask, "SignalMask", "blocked signals stay blocked"},
		{s.UIDMap != nil || s.GIDMap != nil, "UIDMap", "only one ID is mapped"},
		{s.HostUser != nil, "HostUser", "the user is the caller"},
		{s.AllowNewPrivs, "AllowNewPrivs", "no_new_privs is always set"},
		{s.Terminal, "Terminal", "the terminal is the caller's"},
		{s.Umask != nil, "Umask", "the umask is the caller's"},
		{s.Mounts == nil, "Mounts", "there is always a new root"},
		{s.Mounts != nil && (s.Mounts.RootSize != 0 || s.Mounts.RootInodes != 0), "Mounts", "the root has no size limit"},
		{s.Mounts != nil && (!s.Mounts.FollowHost || !s.Mounts.PrivateParents), "Mounts", "mounts of the host propagate, and parents are private"},
		{s.Launcher == nil, "Launcher", "is nil"},
		{len(s.Args) == 0, "Args", "is empty"},
		{strings.HasPrefix(s.Path, "\x00"), "Path", "is no word"},
	} {
		if c.is {
			return noForm(c.field, "%s", c.reason)
		}
	}
	return nil
}

func (f *formatter) namespaces() error {
	n := f.spec.Namespaces
	if n.Mount != nsexec.New {
		return noForm("Namespaces", "the mount namespace is always new")
	}
	for _, t := range []struct {
		name string
		ns   nsexec.Namespace
	}{{"user", n.User}, {"pid", n.PID}, {"net", n.Net}, {"ipc", n.IPC}, {"uts", n.UTS}, {"cgroup", n.Cgroup}} {
		switch t.ns {
		case nsexec.New:
			f.add("--unshare-" + t.name)
		case nsexec.Share:
		default:
			return noForm("Namespaces", "the descriptor of the %s namespace has no number here", t.name)
		}
	}
	return nil
}

func (f *formatter) identity() error {
	s := f.spec
	if s.UID != nil {
		f.add("--uid", fmt.Sprint(*s.UID))
	}
	if s.GID != nil {
		f.add("--gid", fmt.Sprint(*s.GID))
	}
	if s.Hostname != nil {
		f.add("--hostname", *s.Hostname)
	}
	f.flag(s.DisableUserns, "--disable-userns")
	f.flag(s.AssertUsernsDisabled, "--assert-userns-disabled")
	return nil
}

func (f *formatter) caps() error {
	s := f.spec
	if s.KeepCaps {
		if f.facts.UID != 0 {
			return noForm("KeepCaps", "only root keeps its capabilities")
		}
		return nil
	}
	f.flag(f.facts.UID == 0 || s.Caps != 0, "--cap-drop")
	f.flag(f.facts.UID == 0 || s.Caps != 0, "ALL")
	for i := range 64 {
		if s.Caps>>i&1 != 0 {
			f.add("--cap-add", strconv.Itoa(i))
		}
	}
	return nil
}

func (f *formatter) environment() error {
	f.add("--clearenv")
	for _, e := range f.spec.Env {
		name, value, ok := strings.Cut(e, "=")
		if !ok || !validName(name) {
			return noForm("Env", "%q is not NAME=value", e)
		}
		f.add("--setenv", name, value)
	}
	home, _ := environ(f.spec.Env).get("HOME")
	p := parser{facts: f.facts}
	dir, fallback := p.startDir(home)
	switch s := f.spec; {
	case s.Dir == dir && slices.Equal(s.DirFallback, fallback):
	case s.Dir == "" || len(s.DirFallback) > 0:
		return noForm("DirFallback", "the choice is the caller's directory, HOME and /")
	default:
		f.add("--chdir", s.Dir)
	}
	return nil
}

func (f *formatter) perms(p *fs.FileMode) {
	if p != nil {
		f.add("--perms", fmt.Sprintf("%04o", uint32(*p)))
	}
}

func (f *formatter) mounts() error {
	following := false
	for _, op := range f.spec.Mounts.Ops {
		if b, ok := op.(mounts.Bind); ok && b.FollowDest && !following {
			following = true
			f.add("--follow-dest")
		} else if ok && !b.FollowDest && following {
			return noForm("Mounts", "once links are followed they are for all binds after")
		}
		if err := f.mount(op); err != nil {
			return err
		}
	}
	return nil
}

func (f *formatter) mount(op mounts.Op) error {
	switch o := op.(type) {
	case mounts.Bind:
		word := map[mounts.Mode]string{mounts.ReadOnly: "--ro-bind", mounts.ReadWrite: "--bind", mounts.Device: "--dev-bind"}[o.Mode]
		if o.FD != nil {
			if o.Mode == mounts.Device || o.Optional {
				return noForm("Mounts", "%s", o)
			}
			f.add(word+"-fd", strconv.Itoa(*o.FD), o.Dest)
			return nil
		}
		if o.Optional {
			word += "-try"
		}
		f.add(word, o.Source, o.Dest)
	case mounts.Tmpfs:
		if o.Inodes != 0 {
			return noForm("Mounts", "a tmpfs has no limit of files")
		}
		f.perms(o.Perm)
		if o.Size != 0 {
			f.add("--size", fmt.Sprint(o.Size))
		}
		f.add("--tmpfs", o.Dest)
	case mounts.Proc:
		own := f.spec.Namespaces.PID != nsexec.Share
		if o.Host == own || !slices.Equal(o.Masks, f.facts.ProcWritable()) {
			return noForm("Mounts", "%s: its kind and what of it is covered follow from the caller", o)
		}
		f.add("--proc", o.Dest)
	case mounts.Dev:
		if o.Size != 0 || o.Console != f.facts.Terminal {
			return noForm("Mounts", "%s has no size limit, and its console is standard output", o)
		}
		f.add("--dev", o.Dest)
	case mounts.Mqueue:
		f.add("--mqueue", o.Dest)
	case mounts.Dir:
		f.perms(o.Perm)
		f.add("--dir", o.Dest)
	case mounts.File:
		f.perms(o.Perm)
		f.data("--file", o.Data, o.Dest)
	case mounts.BindData:
		f.perms(o.Perm)
		word := "--ro-bind-data"
		if o.Mode == mounts.ReadWrite {
			word = "--bind-data"
		}
		f.data(word, o.Data, o.Dest)
	case mounts.Symlink:
		f.add("--symlink", o.Target, o.Dest)
	case mounts.Chmod:
		f.add("--chmod", fmt.Sprintf("%04o", uint32(o.Perm)), o.Dest)
	case mounts.RemountRO:
		f.add("--remount-ro", o.Dest)
	case mounts.Overlay:
		if o.Size != 0 {
			return noForm("Mounts", "an overlay has no size limit")
		}
		for _, l := range o.Lower {
			f.add("--overlay-src", l)
		}
		switch {
		case o.ReadOnly:
			f.add("--ro-overlay", o.Dest)
		case o.Upper == "":
			f.add("--tmp-overlay", o.Dest)
		default:
			f.add("--overlay", o.Upper, o.Work, o.Dest)
		}
	default:
		return noForm("Mounts", "%s", op)
	}
	return nil
}

func (f *formatter) process() error {
	s := f.spec
	if s.Args[0] != s.Path {
		f.add("--argv0", s.Args[0])
	}
	f.flag(s.NewSession, "--new-session")
	f.flag(s.Namespaces.PID == nsexec.New && !s.Init, "--as-pid-1")
	for _, l := range s.Limits {
		f.add("--rlimit", fmt.Sprintf("%s=%s:%s", pidone.LimitName(l.Resource), limitText(l.Soft), limitText(l.Hard)))
	}
	for _, filter := range s.Seccomp {
		f.data("--add-seccomp-fd", string(filter.Bytes()))
	}
	return nil
}

func (f *formatter) launcher() error {
	x := f.spec.Launcher
	if x.FailStatus != 1 || x.ExecStatus != 1 {
		if x.FailStatus != x.ExecStatus || x.FailStatus < 1 || x.FailStatus > 255 {
			return noForm("Launcher", "there is one status for every failure")
		}
		f.add("--launch-status", strconv.Itoa(x.FailStatus))
	}
	f.flag(x.DieWithParent, "--die-with-parent")
	f.flag(x.Forward, "--forward-signals")
	f.flag(strings.HasPrefix(x.Prefix, "<"), "--level-prefix")
	for _, fd := range x.Sync {
		f.add("--sync-fd", strconv.Itoa(fd))
	}
	for _, l := range x.Locks {
		f.add("--lock-file", l)
	}
	if x.Block != nil {
		f.add("--block-fd", strconv.Itoa(*x.Block))
	}
	if x.UserNS2 != nil {
		f.add("--userns2", strconv.Itoa(*x.UserNS2))
	}
	return nil
}
