//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"github.com/populationgenomics/postern-go/compat/bwrapflags"
	"github.com/populationgenomics/postern-go/mounts"
	"github.com/populationgenomics/postern-go/nsexec"
	"github.com/populationgenomics/postern-go/pidone"
	"golang.org/x/sys/unix"
)

// manyMounts is where compiling a launch allocates enough to be worth a thought.
const manyMounts = 100

// launch runs the command. Where nothing remains to be done afterwards this
// process becomes the launch, and does not return.
func (l *bwrapLauncher) launch() int {
	s, x := &l.cmd.Spec, l.cmd.Spec.Launcher
	if s.Mounts != nil && len(s.Mounts.Ops) > manyMounts {
		// This process is short-lived or idle: collecting would only take time.
		debug.SetGCPercent(-1)
	}
	x.Comm = filepath.Base(l.args[0])
	x.Phrase = l.phrase
	x.UnshareTexts = unshareTexts(s.Namespaces.User.IsNew())
	x.Parent = l.parent
	if err := l.claim(); err != nil {
		return l.fail(err)
	}
	x.Inherited = l.fds.open
	if l.cmd.Action == bwrapflags.Explain {
		text, err := s.Explain()
		if err != nil {
			return l.fail(err)
		}
		fmt.Print(text)
		return 0
	}
	if l.cmd.UserNSBlockFD == nil { // else the caller may yet make them
		if err := l.allThere(); err != nil {
			return l.fail(err)
		}
	}
	if l.cmd.InfoFD == nil && l.cmd.StatusFD == nil && !l.cmd.RemoveMountpoints {
		takeMask()
		return l.fail(nsexec.Exec(s))
	}
	return l.stay()
}

// claim takes the descriptors that the launch itself uses out of those the
// command inherits.
func (l *bwrapLauncher) claim() error {
	c, s, x := l.cmd, &l.cmd.Spec, l.cmd.Spec.Launcher
	if c.UserNS != nil {
		const says = "Joining specified user namespace failed"
		if err := l.namespace(*c.UserNS, unix.CLONE_NEWUSER, says,
			"Joining the specified user namespace failed, it might not be a descendant of the current user namespace."); err != nil {
			return err
		}
		s.Namespaces.User = nsexec.Join(os.NewFile(uintptr(*c.UserNS), "user namespace"))
	}
	if c.PIDNS != nil {
		if err := l.namespace(*c.PIDNS, unix.CLONE_NEWPID, "Setting pidns failed", ""); err != nil {
			return err
		}
		if s.Namespaces.PID.IsNew() {
			x.PIDNS = c.PIDNS
		} else {
			s.Namespaces.PID = nsexec.Join(os.NewFile(uintptr(*c.PIDNS), "PID namespace"))
		}
	}
	if x.UserNS2 != nil {
		if err := l.namespace(*x.UserNS2, unix.CLONE_NEWUSER, "Setting userns2 failed", ""); err != nil {
			return err
		}
	}
	if err := l.sources(); err != nil {
		return err
	}
	x.Sync = slices.DeleteFunc(x.Sync, func(fd int) bool { return !l.fds.has(fd) })
	if x.Block != nil {
		if !l.fds.has(*x.Block) {
			x.Block = nil // as good as one that can be read at once
		} else {
			l.fds.forget(*x.Block)
		}
	}
	for _, own := range []*int{c.InfoFD, c.StatusFD, c.UserNSBlockFD} {
		if own != nil && l.fds.has(*own) && *own > 2 {
			unix.CloseOnExec(*own)
			l.fds.forget(*own)
		}
	}
	return nil
}

// sources looks up those sources of mounts that only this process can, and
// says what is missing before the launch runs into it.
func (l *bwrapLauncher) sources() error {
	ops := l.cmd.Spec.Mounts.Ops
	for i, op := range ops {
		switch op := op.(type) {
		case mounts.Bind:
			if op.FD != nil {
				if !l.fds.has(*op.FD) {
					return l.missing(fmt.Sprintf("/proc/self/fd/%d", *op.FD), unix.ENOENT)
				}
				l.fds.forget(*op.FD)
			}
			if ofSelf(op.Source) {
				// By the time of the mount another process would be meant.
				if path, err := filepath.EvalSymlinks(op.Source); err == nil {
					l.cmd.Rename(path, op.Source)
					op.Source = path
					ops[i] = op
				}
			}
		case mounts.Overlay:
			for _, layer := range append([]string{op.Upper, op.Work}, op.Lower...) {
				if layer == "" {
					continue
				}
				if err := unix.Access(layer, unix.F_OK); err != nil {
					return l.missing(layer, err)
				}
			}
		}
	}
	return nil
}

func (l *bwrapLauncher) missing(path string, err error) error {
	var e unix.Errno
	errors.As(err, &e)
	return said("Can't find source path " + l.cmd.Source(path) + ": " + pidone.ErrnoText(e))
}

// allThere looks for the sources of all binds if by the time it misses one the
// launch might have changed something on the host, or told somebody of a process
// that has ended by then.
func (l *bwrapLauncher) allThere() error {
	ops := l.cmd.Spec.Mounts.Ops
	if l.cmd.InfoFD == nil && l.cmd.StatusFD == nil && !changesHost(ops) {
		return nil
	}
	for _, op := range ops {
		b, ok := op.(mounts.Bind)
		if !ok || b.FD != nil {
			continue
		}
		if err := unix.Access(b.Source, unix.F_OK); err != nil && !(b.Optional && err == unix.ENOENT) {
			return l.missing(b.Source, err)
		}
	}
	return nil
}

// changesHost reports whether mounts may make or change files of the host's:
// where one that can be written to is followed by others, which may lie in it.
func changesHost(ops []mounts.Op) bool {
	for _, op := range ops[:max(0, len(ops)-1)] {
		switch op := op.(type) {
		case mounts.Bind:
			if op.Mode != mounts.ReadOnly {
				return true
			}
		case mounts.Overlay:
			if op.Upper != "" {
				return true
			}
		}
	}
	return false
}

// ofSelf reports whether a path means something else in every process.
func ofSelf(path string) bool {
	for _, prefix := range []string{"/proc/self/", "/proc/thread-self/", "/dev/fd/", "/dev/std"} {
		if strings.HasPrefix(path, prefix) {
			return true
		}
	}
	return false
}

// namespace checks that a descriptor is a namespace of this type.
func (l *bwrapLauncher) namespace(fd, kind int, says, unfit string) error {
	if !l.fds.has(fd) {
		return said(says + ": " + pidone.ErrnoText(unix.EBADF))
	}
	l.fds.forget(fd)
	if is, err := unix.IoctlRetInt(fd, unix.NS_GET_NSTYPE); err != nil || is != kind {
		if unfit != "" {
			return said(unfit)
		}
		return said(says + ": " + pidone.ErrnoText(unix.EINVAL))
	}
	return nil
}

// stay launches the command as a child and does what is left to do around it.
func (l *bwrapLauncher) stay() int {
	s, x := &l.cmd.Spec, l.cmd.Spec.Launcher
	giveBackLimit()
	keepThread()
	s.Stdin, s.Stdout, s.Stderr = os.Stdin, os.Stdout, os.Stderr
	x.Parent = 0
	if x.DieWithParent {
		if err := endWith(l.parent); err != nil {
			return l.fail(err)
		}
	}
	x.ForeignMaps = l.cmd.UserNSBlockFD != nil
	x.Announce = l.announce // once the launch has its own copies of all descriptors
	if l.cmd.RemoveMountpoints {
		x.Linger = false // what lives on would lose its mounts
		made := makeMountpoints(s.Mounts.Ops)
		defer made.remove()
	}
	// Before the launch, because the command can run before the launch is known
	// to be done. One that waits for somebody must end by a signal meanwhile.
	waits := x.Block != nil || l.cmd.UserNSBlockFD != nil
	var caught chan os.Signal
	if !waits {
		caught = l.catch()
	}
	p, err := nsexec.Start(s)
	if err != nil {
		return l.fail(err)
	}
	if waits {
		caught = l.catch()
	}
	var ended <-chan unix.Signal
	switch {
	case x.Forward:
		passOn(caught, p)
	case l.cmd.RemoveMountpoints:
		ended = endTogether(caught, p)
	}
	st, err := p.Wait(context.Background())
	if err != nil {
		return l.fail(err)
	}
	if st.ExecErr == 0 && l.cmd.StatusFD != nil {
		// Nobody is left to tell if this fails.
		fmt.Fprintf(rawFD(*l.cmd.StatusFD), "{ \"exit-code\": %d }\n", st.ExitCode)
	}
	select {
	case sig := <-ended:
		return 128 + int(sig)
	default:
		return st.ExitCode
	}
}

// giveBackLimit undoes what the runtime has done to the soft limit on
// descriptors: it does so before it executes a program, also one that there is
// not. A launch would have to ask a child for the limit.
func giveBackLimit() { syscall.Exec("", nil, nil) }

// endWith ends this process when its parent ends, and with it what it has
// launched. A pidfd does not mind which thread of the parent started us.
func endWith(parent int) error {
	if parent == 0 { // it is outside of our PID namespace and cannot be watched
		return unix.Prctl(unix.PR_SET_PDEATHSIG, uintptr(unix.SIGKILL), 0, 0, 0)
	}
	fd, err := unix.PidfdOpen(parent, 0)
	if err != nil || unix.Getppid() != parent {
		return errors.New("the parent process has ended")
	}
	go func() {
		for {
			n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, -1)
			if n > 0 || err != nil && err != unix.EINTR {
				unix.Kill(unix.Getpid(), unix.SIGKILL)
			}
		}
	}()
	return nil
}

// announce tells the caller what it asked to know of the sandbox.
func (l *bwrapLauncher) announce(pid int) error {
	c := l.cmd
	// The launch has them; whoever waits for their end must not wait for us.
	l.fds.closeAll(c.InfoFD, c.StatusFD, c.UserNSBlockFD)
	spaces, err := l.newNamespaces(pid)
	if err != nil {
		return err
	}
	if c.InfoFD != nil {
		if err := writeInfo(*c.InfoFD, spaces.document("{\n    ", ",\n    ", "\n}\n")); err != nil {
			return err
		}
	}
	if c.StatusFD != nil {
		if err := writeInfo(*c.StatusFD, spaces.document("{ ", ", ", " }\n")); err != nil {
			return err
		}
	}
	if c.InfoFD != nil && *c.InfoFD > 2 && (c.StatusFD == nil || *c.StatusFD != *c.InfoFD) {
		unix.Close(*c.InfoFD) // its end says that the document is complete
	}
	if c.UserNSBlockFD != nil {
		var b [1]byte
		rawFD(*c.UserNSBlockFD).Read(b[:]) // end of file and errors let it go on as well
		unix.Close(*c.UserNSBlockFD)
		return l.allThere()
	}
	return nil
}

func writeInfo(fd int, text string) error {
	if _, err := rawFD(fd).Write([]byte(text)); err != nil {
		var e unix.Errno
		errors.As(err, &e)
		return said("Write to info_fd: " + pidone.ErrnoText(e))
	}
	return nil
}

// A fact is a name and a number of a status document.
type fact struct {
	name  string
	value uint64
}

type facts []fact

func (f facts) document(begin, between, end string) string {
	text := begin
	for i, x := range f {
		if i > 0 {
			text += between
		}
		text += strconv.Quote(x.name) + ": " + strconv.FormatUint(x.value, 10)
	}
	return text + end
}

// newNamespaces are the guest's first process and its new namespaces, except
// for the user namespace.
func (l *bwrapLauncher) newNamespaces(pid int) (facts, error) {
	out := facts{{"child-pid", uint64(pid)}}
	n := l.cmd.Spec.Namespaces
	for _, t := range []struct {
		name string
		is   nsexec.Namespace
	}{{"cgroup", n.Cgroup}, {"ipc", n.IPC}, {"mnt", n.Mount}, {"net", n.Net}, {"pid", n.PID}, {"uts", n.UTS}} {
		if !t.is.IsNew() {
			continue
		}
		var st unix.Stat_t
		if err := unix.Stat(fmt.Sprintf("/proc/%d/ns/%s", pid, t.name), &st); err != nil {
			return nil, fmt.Errorf("open /proc/%d/ns failed: %w", pid, err)
		}
		out = append(out, fact{t.name + "-namespace", st.Ino})
	}
	return out, nil
}
