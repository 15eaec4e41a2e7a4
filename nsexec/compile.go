//go:build linux

package nsexec

import (
	"encoding/binary"
	"fmt"
	"maps"
	"math"
	"os"
	"slices"
	"strings"

	"github.com/populationgenomics/postern-go/internal/stage"
	"github.com/populationgenomics/postern-go/mounts"
	"github.com/populationgenomics/postern-go/pidone"
	"github.com/populationgenomics/postern-go/seccompbpf"
	"golang.org/x/sys/unix"
)

// Steps of a launch that errors name, for callers that phrase them anew.
// Package mounts has more.
const (
	DoClose       = "close inherited descriptors"
	DoHostUser    = "become the host user"
	DoJoin        = "join the existing namespace"
	DoUnshare     = "create namespaces"
	DoMap         = "write the ID map"
	DoSetgroups   = "deny setgroups"
	DoMapWait     = "wait for the ID maps"
	DoIDs         = "become the guest's user"
	DoFork        = "start the init"
	DoLoopback    = "bring up the loopback interface"
	DoHostname    = "set the host name"
	DoSession     = "start a session"
	DoCaps        = "drop capabilities"
	DoKeepCaps    = "keep capability"
	DoNoNewPrivs  = "set no_new_privs"
	DoSeccomp     = "install the seccomp filter"
	DoUsernsLimit = "forbid user namespaces"
	DoUsernsCheck = "check that user namespaces are forbidden"
	DoTerminal    = "open a pseudo-terminal"
	DoNull        = "open the guest's /dev/null"
	DoDir         = "change to directory"
	DoUmask       = "set the umask"
	DoBlock       = "wait for the caller"
	DoLock        = "lock file"
	DoOpenLock    = "open lock file"
	DoName        = "name the process"
	DoUserNS2     = "enter the second user namespace"
)

func do(what string) stage.Step           { return stage.Step{Do: what} }
func doOn(what, object string) stage.Step { return stage.Step{Do: what, On: object} }

// A compiler turns a spec into a program. The numbers are those descriptors
// have in the process that runs it.
type compiler struct {
	*stage.Builder
	spec    *Spec
	monitor bool         // the launch is one of Exec, which tells of failures itself
	holder  int          // PID of a child of the monitor's that is to be waited for, or 0
	late    bool         // the command comes with the host's word
	words   stage.Mem    // where it comes to
	control int          // socket to the host, or -1
	events  events       // between the launch and the monitor
	joins   map[int]int  // namespace flag -> descriptor to join
	oldMask stage.Mem    // the caller's signal mask
	umask   stage.Slot   // the caller's umask
	peer    stage.Slot   // the terminal, opened by the init for the command
	procfs  stage.Slot   // the caller's /proc, to be used after the root is gone
	env     stage.Slot   // address of the environment, if it depends on the directory
	alive   []stage.Slot // pidfds whose end is the guest's
	stage   stage.Slot   // pidfd of the stage, in the init
	watched stage.Slot   // pidfd of the parent, if the guest has to do with it
	net     netns        // how the guest gets its network namespace
}

func (c *compiler) compile() *stage.Program {
	s, n := c.spec, c.spec.Namespaces
	if c.Builder == nil {
		c.Builder = &stage.Builder{}
	}
	x := s.Launcher
	if c.monitor {
		c.Texts = x.failure
	}
	c.oldMask = c.Mem(8)
	c.umask, c.peer, c.procfs = c.Slot(), c.Slot(), c.Slot()

	pidone.BlockSignals(c.Builder, c.oldMask)
	if c.monitor {
		c.becomeMonitor()
	}
	if !s.KeepFDs {
		c.closeOthers()
	}
	for _, fd := range append(c.events.fds(), c.control) {
		if fd > 0 {
			c.Sys(do(DoClose), stage.CloseRange, stage.FD(fd), stage.FD(fd), stage.Imm(unix.CLOSE_RANGE_CLOEXEC))
		}
	}
	c.SysTo(c.umask, do(DoUmask), stage.Umask, stage.Imm(0))
	if s.Namespaces.User.file == nil {
		c.join() // while there are the rights to
	}
	c.hostUser()
	x.watchParent(c)
	c.namespaces()

	var child stage.Label
	switch pid := c.Slot(); {
	case c.monitor && c.forks():
		if c.splitsNet() {
			c.watchStage()
		}
		c.net.prepare(c)
		c.forkForMonitor(pid, &child)
	case c.monitor: // nothing to start
	case n.PID != Share:
		c.watchStage()
		c.net.prepare(c)
		c.keeper(pid, &child)
	case x.announces():
		c.SysTo(pid, do(DoFork), stage.Getpid)
		pidone.SendRecord(c.Builder, c.control, stage.Started, pid)
	}
	c.Place(&child)
	if c.splitsNet() { // here it costs nobody time
		if n.User.fresh && !s.hostWritesMaps() {
			c.mapSelf()
		}
	}
	x.belowPIDNamespace(c)
	if x.announces() {
		c.awaitHost()
	}
	if s.DisableUserns || s.AssertUsernsDisabled || x.innerUser() {
		c.SysTo(c.procfs, doOn(DoUsernsLimit, "/proc"), stage.Openat, stage.Imm(unix.AT_FDCWD), stage.Str("/proc"), stage.Imm(unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC))
	}
	if s.NewSession {
		c.Sys(do(DoSession), stage.Setsid)
	}
	c.dropBounding()
	if s.Mounts != nil {
		s.Mounts.Emit(c.Builder)
	}
	if n.Net.fresh && !c.splitsNet() {
		c.loopback(c.scratch())
	}
	c.ownNull()
	if s.Hostname != nil {
		c.Sys(doOn(DoHostname, *s.Hostname), stage.Sethostname, stage.Str(*s.Hostname), stage.Imm(len(*s.Hostname)))
	}
	if s.Terminal {
		c.terminal()
	}
	c.net.join(c)
	x.joinUserNS2(c)
	c.limitUserns()
	if s.DisableUserns || x.innerUser() {
		c.dropBounding() // which is full again in a new user namespace
	}
	c.run()

	c.Place(&c.Fail)
	if c.monitor {
		c.reportFailure()
	} else {
		pidone.SendRecord(c.Builder, c.control, stage.Failed, stage.FailedOp, stage.FailedErrno, stage.FailedWhy)
		c.Sys(do("exit"), stage.ExitGroup, stage.Imm(1))
	}
	return c.Program()
}

// ownNull replaces the host's /dev/null by the guest's on the standard streams
// the caller has not given, if that is another: through a descriptor a guest
// could change the mode of the host's.
func (c *compiler) ownNull() {
	s := c.spec
	if c.control < 0 || s.Mounts == nil || !slices.ContainsFunc(s.Mounts.Ops, func(op mounts.Op) bool {
		dev, ok := op.(mounts.Dev)
		return ok && dev.Dest == "/dev" && dev.FixedNodes
	}) {
		return
	}
	step, null := do(DoNull), stage.Slot(0)
	for fd, f := range []*os.File{s.Stdin, s.Stdout, s.Stderr} {
		if f != nil {
			continue
		}
		if null == 0 {
			null = c.Slot()
			c.SysTo(null, step, stage.Openat, stage.Imm(unix.AT_FDCWD), stage.Str("/dev/null"), stage.Imm(unix.O_RDWR|unix.O_CLOEXEC|unix.O_NOFOLLOW), stage.Imm(0))
		}
		c.Sys(step, stage.Dup3, null, stage.FD(fd), stage.Imm(0))
	}
	if null != 0 {
		c.Try(stage.Discard, step, stage.Close, null)
	}
}

// closeOthers closes every descriptor but the standard streams and what the
// launch was given.
func (c *compiler) closeOthers() {
	from := 3 + len(c.spec.Files) + len(c.spec.StageFiles)
	if c.control >= 0 { // by Start, which numbers what it gives
		from = c.control + 1
	}
	closeAllBut(c.Builder, from, slices.AppendSeq(c.events.fds(), maps.Values(c.joins)))
}

// closeAllBut closes the descriptors from a number up but those to keep.
func closeAllBut(b *stage.Builder, from int, keep []int) {
	for _, fd := range slices.Sorted(slices.Values(keep)) {
		if fd > from {
			b.Sys(do(DoClose), stage.CloseRange, stage.FD(from), stage.FD(fd-1), stage.Imm(0))
		}
		from = max(from, fd+1)
	}
	b.Sys(do(DoClose), stage.CloseRange, stage.FD(from), stage.Imm(math.MaxUint32), stage.Imm(0))
}

// execPrefix begins the message about a program that cannot be executed.
const execPrefix = "postern: "

// maxWords is how large a command a template is for, in bytes. One message to
// the init carries it.
const maxWords = 64 << 10

// run emits the end of the launch: init and command, or the command alone.
func (c *compiler) run() {
	s, x := c.spec, c.spec.Launcher
	cmd := pidone.Command{
		Path: s.Path, Args: s.Args, Env: s.Env, Limits: s.limits(),
		Prefix: execPrefix,
		Setup:  c.beforeExec,
	}
	if c.late {
		c.words = c.Mem(maxWords)
		cmd.In = c.words
	}
	if s.SignalMask {
		mask := c.Slot()
		c.Load64(mask, c.oldMask, stage.Imm(0))
		c.And(mask, mask, stage.Imm(^(1 << (int64(unix.SIGCHLD) - 1))))
		cmd.SignalMask = stage.SlotAddr(mask)
	}
	if x != nil {
		cmd.Prefix, cmd.Status = x.ExecPrefix, x.ExecStatus
	}
	if s.DisableUserns || x.innerUser() || x != nil && x.UserNS2 != nil {
		c.dropBounding() // a new user namespace came with a full set
	}
	if !s.AllowNewPrivs {
		c.Sys(do(DoNoNewPrivs), stage.Prctl, stage.Imm(unix.PR_SET_NO_NEW_PRIVS), stage.Imm(1), stage.Imm(0), stage.Imm(0), stage.Imm(0))
	}
	if s.SetPWD {
		c.env = c.Slot()
		cmd.EnvAt = c.env
	}
	x.block(c)
	c.awaitMonitor()
	if !s.Init && !x.reaper() {
		x.dieWithParent(c)
		c.net.complete(c)
		if c.awaitsHost() {
			c.awaitHost()
		}
		c.leaveStage()
		cmd.EmitAlone(c.Builder, c.control)
		return
	}
	forward := s.Init && (x == nil || x.Forward)
	cmd.OwnGroup = forward && !s.Terminal
	in := pidone.Init{
		Control:   c.control,
		Lifelines: c.alive,
		AwaitHost: c.awaitsHost(),
		Forward:   forward,
		Linger:    s.Init && x.linger(),
		Command:   cmd,
		Before: func(b *stage.Builder) {
			c.name(x.comm())
			c.Sys(do(DoName), stage.Prctl, stage.Imm(unix.PR_SET_DUMPABLE), stage.Imm(0), stage.Imm(0), stage.Imm(0), stage.Imm(0))
			if s.Caps == 0 && !s.KeepCaps {
				c.setCaps(0)
			}
			c.dir()
			if c.monitor {
				x.dieWithParent(c)
			}
			x.lock(c)
			if c.seccompOnce() {
				c.seccomp()
			}
			c.net.complete(c)
			if c.awaitsHost() {
				c.awaitWord()
			}
			c.leaveStage()
		},
		Detach: func(b *stage.Builder) {
			x.detach(c)
			if x == nil {
				c.leaveStreams()
			}
			if s.Terminal {
				c.Try(stage.Discard, do(DoTerminal), stage.Close, c.peer)
			}
			if s.Caps != 0 || s.KeepCaps {
				c.setCaps(0)
			}
			if !c.seccompOnce() {
				c.seccomp()
			}
		},
	}
	if c.events.ended != 0 {
		in.Event = stage.FD(c.events.ended)
	}
	in.Emit(c.Builder)
}

// beforeExec is what the command does last.
func (c *compiler) beforeExec(*stage.Builder) {
	s := c.spec
	if s.Terminal {
		t := do(DoTerminal)
		c.Sys(t, stage.Setsid)
		for fd := range 3 {
			c.Sys(t, stage.Dup3, c.peer, stage.FD(fd), stage.Imm(0))
		}
		c.Sys(t, stage.Ioctl, stage.FD(0), stage.Imm(unix.TIOCSCTTY), stage.Imm(0))
	}
	if s.Umask != nil {
		c.Try(stage.Discard, do(DoUmask), stage.Umask, stage.Imm(int64(*s.Umask)))
	} else {
		c.Try(stage.Discard, do(DoUmask), stage.Umask, c.umask)
	}
	if !s.KeepCaps && (s.Caps != 0 || !s.Init) {
		c.setCaps(s.Caps)
	}
	if !s.Init && !s.Launcher.reaper() {
		c.dir()
	}
	s.Launcher.beforeExec(c)
	if !c.seccompOnce() {
		c.seccomp()
	}
}

// seccompOnce reports whether the init installs the filters and the program
// inherits them, which halves their cost but needs filters that let the init
// do its work.
func (c *compiler) seccompOnce() bool {
	return c.spec.Init && (c.spec.Launcher == nil || !c.spec.Launcher.SeccompTwice)
}

func (c *compiler) name(name string) {
	c.Sys(doOn(DoName, name), stage.Prctl, stage.Imm(unix.PR_SET_NAME), stage.Str(name), stage.Imm(0), stage.Imm(0), stage.Imm(0))
}

// awaitsHost reports whether the program waits for the host to have a hold on
// the guest. Where it is announced it has waited before.
func (c *compiler) awaitsHost() bool { return c.control >= 0 && !c.spec.Launcher.announces() }

// awaitWord waits until the host has something to say, or ends if it can have
// nothing, not knowing of the init.
func (c *compiler) awaitWord() {
	if c.stage == 0 {
		return
	}
	control := c.Slot()
	var gone, said stage.Label
	c.Move(control, stage.FD(c.control))
	c.awaitEvent(control, c.stage, &gone)
	c.Jump(&said)
	c.Place(&gone)
	c.Sys(do("exit"), stage.ExitGroup, stage.Imm(128+int64(unix.SIGKILL)))
	c.Place(&said)
}

func (c *compiler) awaitHost() {
	c.awaitWord()
	var ready stage.Label
	t := c.Slot()
	buf := c.Mem(8)
	c.SysTo(t, do("wait for the host"), stage.Read, stage.FD(c.control), buf, stage.Imm(1))
	c.If(stage.Jeq, t, stage.Imm(1), &ready)
	c.Sys(do("exit"), stage.ExitGroup, stage.Imm(128+int64(unix.SIGKILL)))
	c.Place(&ready)
}

func (c *compiler) hostUser() {
	s := c.spec
	step := do(DoHostUser)
	if !s.KeepGroups && unix.Geteuid() == 0 {
		drop := func(onErr *stage.Label) {
			c.SysOr(onErr, stage.Discard, step, stage.Setgroups, stage.Imm(0), stage.Imm(0))
		}
		if s.HostUser != nil {
			drop(&c.Fail)
		} else {
			// Root of a user namespace may not be allowed to; there is nothing
			// to gain by the groups then that it does not have anyway.
			var failed, dropped stage.Label
			drop(&failed)
			c.Jump(&dropped)
			c.Place(&failed)
			c.If(stage.Jne, stage.FailedErrno, stage.Imm(-int64(unix.EPERM)), &c.Fail)
			c.Place(&dropped)
		}
	}
	if s.HostUser == nil {
		return
	}
	step.On = fmt.Sprint(s.HostUser.UID)
	if s.HostUser.GID != nil {
		g := stage.Imm(int64(*s.HostUser.GID))
		c.Sys(step, stage.Setresgid, g, g, g)
	}
	u := stage.Imm(int64(s.HostUser.UID))
	c.Sys(step, stage.Setresuid, u, u, u)
	// Changing users hides /proc/self from the process itself.
	c.Sys(step, stage.Prctl, stage.Imm(unix.PR_SET_DUMPABLE), stage.Imm(1), stage.Imm(0), stage.Imm(0), stage.Imm(0))
}

// join enters the existing namespaces.
func (c *compiler) join() {
	for _, t := range c.spec.Namespaces.types() {
		if fd, ok := c.joins[t.flag]; ok {
			c.Sys(doOn(DoJoin, t.name), stage.Setns, stage.FD(fd), stage.Imm(t.flag))
			c.Sys(doOn(DoJoin, t.name), stage.Close, stage.FD(fd))
		}
	}
}

func (c *compiler) namespaces() {
	s := c.spec
	if s.Namespaces.User.file != nil {
		c.join()
	}
	f := s.Namespaces.newFlags()
	if c.splitsNet() {
		f &^= unix.CLONE_NEWNET
	}
	if f != 0 {
		if s.Launcher.belowPID() {
			f &^= unix.CLONE_NEWPID // comes later, see belowPIDNamespace
		}
		c.unshare(f)
	}
	switch {
	case s.Namespaces.User.fresh && s.Launcher.foreignMaps():
	case s.Namespaces.User.fresh && s.hostWritesMaps():
		pidone.SendRecord(c.Builder, c.control, stage.Unshared)
		t := c.Slot()
		buf := c.Mem(8)
		var mapped stage.Label
		c.SysTo(t, do(DoMapWait), stage.Read, stage.FD(c.control), buf, stage.Imm(1))
		c.If(stage.Jeq, t, stage.Imm(1), &mapped)
		c.Sys(do("exit"), stage.ExitGroup, stage.Imm(1))
		c.Place(&mapped)
		c.becomeGuest()
	case s.Namespaces.User.fresh:
		if !c.splitsNet() {
			c.mapSelf()
		}
	default:
		c.becomeGuest()
	}
}

// mapSelf maps the one ID on each side that needs no privilege.
func (c *compiler) mapSelf() {
	uid, gid := c.spec.outsideIDs()
	inUID, inGID := c.spec.outerIDs()
	c.writeFile(doOn(DoMap, "uid"), "/proc/self/uid_map", fmt.Sprintf("%d %d 1\n", inUID, uid))
	c.writeFile(do(DoSetgroups), "/proc/self/setgroups", "deny")
	c.writeFile(doOn(DoMap, "gid"), "/proc/self/gid_map", fmt.Sprintf("%d %d 1\n", inGID, gid))
}

// becomeGuest switches to the guest's IDs where the namespace has more than
// one to offer.
func (c *compiler) becomeGuest() {
	s := c.spec
	if s.GID != nil {
		g := stage.Imm(int64(*s.GID))
		c.Sys(do(DoIDs), stage.Setresgid, g, g, g)
	}
	if s.UID != nil {
		u := stage.Imm(int64(*s.UID))
		// Keep the rights the rest of the launch needs, also as a user that
		// is not root.
		keep := func(on int64) {
			c.Sys(do(DoIDs), stage.Prctl, stage.Imm(unix.PR_SET_KEEPCAPS), stage.Imm(on), stage.Imm(0), stage.Imm(0), stage.Imm(0))
		}
		keep(1)
		c.Sys(do(DoIDs), stage.Setresuid, u, u, u)
		c.raiseAll()
		keep(0)
		c.Sys(do(DoIDs), stage.Prctl, stage.Imm(unix.PR_SET_DUMPABLE), stage.Imm(1), stage.Imm(0), stage.Imm(0), stage.Imm(0))
	}
}

// outerIDs are the guest's IDs in the first user namespace of the launch.
func (s *Spec) outerIDs() (uid, gid uint32) {
	if s.Launcher.innerUser() {
		return 0, 0
	}
	return s.insideUID(), s.insideGID()
}

func (s *Spec) hostWritesMaps() bool { return s.UIDMap != nil }

func (s *Spec) outsideIDs() (uid, gid uint32) {
	uid, gid = uint32(unix.Geteuid()), uint32(unix.Getegid())
	if s.HostUser != nil {
		uid = s.HostUser.UID
		if s.HostUser.GID != nil {
			gid = *s.HostUser.GID
		}
	}
	return uid, gid
}

func (s *Spec) insideUID() uint32 {
	if s.UID != nil {
		return *s.UID
	}
	uid, _ := s.outsideIDs()
	return uid
}

func (s *Spec) insideGID() uint32 {
	if s.GID != nil {
		return *s.GID
	}
	_, gid := s.outsideIDs()
	return gid
}

func (c *compiler) writeFile(step stage.Step, path, data string) {
	fd := c.scratch()
	c.SysTo(fd, step, stage.Openat, stage.Imm(unix.AT_FDCWD), stage.Str(path), stage.Imm(unix.O_WRONLY|unix.O_CLOEXEC), stage.Imm(0))
	c.Sys(step, stage.Write, fd, stage.Str(data), stage.Imm(len(data)))
	c.Sys(step, stage.Close, fd)
}

// scratch returns a slot for a short-lived value; peer is not in use
// before the terminal exists.
func (c *compiler) scratch() stage.Slot { return c.peer }

func (c *compiler) loopback(fd stage.Slot) {
	ifr := make([]byte, 40) // struct ifreq
	copy(ifr, "lo")
	binary.LittleEndian.PutUint16(ifr[16:], unix.IFF_UP)
	c.SysTo(fd, do(DoLoopback), stage.Socket, stage.Imm(unix.AF_INET), stage.Imm(unix.SOCK_DGRAM|unix.SOCK_CLOEXEC), stage.Imm(0))
	c.Sys(do(DoLoopback), stage.Ioctl, fd, stage.Imm(unix.SIOCSIFFLAGS), stage.Blob(ifr))
	c.Sys(do(DoLoopback), stage.Close, fd)
}

// dir comes when the rights of the launch are gone: the guest must not be where
// it could not go itself.
func (c *compiler) dir() {
	s := c.spec
	dirs := append([]string{}, s.Dir)
	if s.Dir == "" {
		dirs = nil
	}
	dirs = append(dirs, s.DirFallback...)
	if s.SetPWD {
		c.Move(c.env, stage.Strings(s.Env))
	}
	var done stage.Label
	for i, d := range dirs {
		if s.SetPWD {
			c.Move(c.env, stage.Strings(withPWD(s.Env, d)))
		}
		if i == len(dirs)-1 {
			c.Sys(doOn(DoDir, d), stage.Chdir, stage.Str(d))
			break
		}
		t := c.scratch()
		if s.Terminal {
			t = c.Slot()
		}
		c.Try(t, doOn(DoDir, d), stage.Chdir, stage.Str(d))
		c.If(stage.Jeq, t, stage.Imm(0), &done)
	}
	c.Place(&done)
}

// withPWD returns env with PWD set, in its place if it was there.
func withPWD(env []string, dir string) []string {
	out := slices.Clone(env)
	for i, e := range out {
		if strings.HasPrefix(e, "PWD=") {
			out[i] = "PWD=" + dir
			return out
		}
	}
	return append(out, "PWD="+dir)
}

const lastKnownCap = unix.CAP_LAST_CAP

// dropBounding removes every capability that is not kept from the bounding
// set, up to the last one the kernel has.
func (c *compiler) dropBounding() {
	s := c.spec
	if s.KeepCaps && s.Caps == AllCaps {
		return
	}
	step := do(DoCaps)
	i, r := c.Slot(), c.Slot()
	var loop, next, done stage.Label
	c.Place(&loop)
	if s.Caps != 0 {
		c.Shr(r, stage.Imm(int64(s.Caps)), i)
		c.If(stage.Jset, r, stage.Imm(1), &next)
	}
	var fail stage.Label
	c.SysOr(&fail, r, step, stage.Prctl, stage.Imm(unix.PR_CAPBSET_DROP), i, stage.Imm(0), stage.Imm(0), stage.Imm(0))
	c.Place(&next)
	c.Add(i, i, stage.Imm(1))
	c.If(stage.Jlt, i, stage.Imm(64), &loop)
	c.Jump(&done)
	c.Place(&fail)
	if !s.AllowNewPrivs && s.Namespaces.User == Share {
		// A caller without rights may not; without new privileges the
		// guest cannot gain anything from the set either.
		c.If(stage.Jeq, stage.FailedErrno, stage.Imm(-int64(unix.EPERM)), &done)
	}
	c.If(stage.Jlt, i, stage.Imm(1), &c.Fail) // CAP_CHOWN exists: this is no end of the list
	c.If(stage.Jne, stage.FailedErrno, stage.Imm(-int64(unix.EINVAL)), &c.Fail)
	c.Place(&done)
}

func capHeader() stage.Blob {
	return stage.Blob(binary.LittleEndian.AppendUint64(nil, unix.LINUX_CAPABILITY_VERSION_3))
}

func capData(eff, perm, inh CapSet) stage.Blob {
	var b []byte
	for shift := 0; shift < 64; shift += 32 {
		for _, set := range []CapSet{eff, perm, inh} {
			b = binary.LittleEndian.AppendUint32(b, uint32(set>>shift))
		}
	}
	return stage.Blob(b)
}

func (c *compiler) setCaps(keep CapSet) {
	c.Sys(do(DoCaps), stage.Capset, capHeader(), capData(keep, keep, keep))
	for i := range 64 {
		if keep>>i&1 != 0 {
			c.Sys(doOn(DoKeepCaps, CapSet(1<<i).String()), stage.Prctl, stage.Imm(unix.PR_CAP_AMBIENT), stage.Imm(unix.PR_CAP_AMBIENT_RAISE), stage.Imm(i), stage.Imm(0), stage.Imm(0))
		}
	}
}

// raiseAll makes effective what the change of user left permitted: everything
// in a user namespace that was just made or joined.
func (c *compiler) raiseAll() {
	all := CapSet(1<<(lastKnownCap+1) - 1)
	if c.spec.Namespaces.User == Share {
		all = permitted()
	}
	c.Sys(do(DoIDs), stage.Capset, capHeader(), capData(all, all, 0))
}

// permitted returns the capabilities this process may have.
func permitted() CapSet {
	hdr := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	if unix.Capget(&hdr, &data[0]) != nil {
		return 0
	}
	return CapSet(data[0].Permitted) | CapSet(data[1].Permitted)<<32
}

func (c *compiler) seccomp() {
	for i, f := range c.spec.Seccomp {
		c.Sys(doOn(DoSeccomp, fmt.Sprint(i)), stage.Seccomp, stage.Imm(unix.SECCOMP_SET_MODE_FILTER), stage.Imm(0), sockFprog(f))
	}
}

func sockFprog(f seccompbpf.Filter) stage.Vec {
	return stage.Vec{stage.Imm(len(f)), stage.Blob(f.Bytes())}
}

// limitUserns forbids further user namespaces by allowing one and using it.
func (c *compiler) limitUserns() {
	s := c.spec
	if s.DisableUserns || s.Launcher.innerUser() {
		fd, step := c.Slot(), doOn(DoUsernsLimit, "/proc/sys/user/max_user_namespaces")
		uid, gid := s.outerIDs()
		write := func(step stage.Step, path, data string) {
			c.SysTo(fd, step, stage.Openat, c.procfs, stage.Str(path), stage.Imm(unix.O_WRONLY|unix.O_CLOEXEC), stage.Imm(0))
			c.Sys(step, stage.Write, fd, stage.Str(data), stage.Imm(len(data)))
			c.Sys(step, stage.Close, fd)
		}
		if s.DisableUserns {
			write(step, "sys/user/max_user_namespaces", "1")
		}
		c.Sys(do(DoUsernsLimit), stage.Unshare, stage.Imm(unix.CLONE_NEWUSER))
		write(do(DoSetgroups), "self/setgroups", "deny")
		write(doOn(DoMap, "uid"), "self/uid_map", fmt.Sprintf("%d %d 1\n", s.insideUID(), uid))
		write(doOn(DoMap, "gid"), "self/gid_map", fmt.Sprintf("%d %d 1\n", s.insideGID(), gid))
	}
	if s.DisableUserns || s.AssertUsernsDisabled {
		var forbidden stage.Label
		c.SysOr(&forbidden, stage.Discard, do(DoUsernsCheck), stage.Unshare, stage.Imm(unix.CLONE_NEWUSER))
		c.Sys(do(DoUsernsCheck), stage.Close, stage.Imm(-1)) // it worked: fail
		c.Place(&forbidden)
	}
	if s.DisableUserns || s.AssertUsernsDisabled || s.Launcher.innerUser() {
		c.Sys(do(DoUsernsCheck), stage.Close, c.procfs)
	}
}

// terminal opens a pseudo-terminal in the guest's devpts and sends its master
// to the host.
func (c *compiler) terminal() {
	step := do(DoTerminal)
	master := c.Slot()
	c.SysTo(master, step, stage.Openat, stage.Imm(unix.AT_FDCWD), stage.Str("/dev/pts/ptmx"), stage.Imm(unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC))
	c.Sys(step, stage.Ioctl, master, stage.Imm(unix.TIOCSPTLCK), stage.Blob("\x00\x00\x00\x00"))
	c.SysTo(c.peer, step, stage.Ioctl, master, stage.Imm(unix.TIOCGPTPEER), stage.Imm(unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC))
	if size := c.spec.TerminalSize; size != (unix.Winsize{}) {
		c.Sys(step, stage.Ioctl, master, stage.Imm(unix.TIOCSWINSZ), winsize(size))
	}
	c.sendRecord(&c.Fail, step, stage.Terminal, stage.Imm(0), master)
	c.Sys(step, stage.Close, master)
}

// sendRecord sends the host a record and a descriptor.
func (c *compiler) sendRecord(onErr *stage.Label, step stage.Step, k stage.RecordKind, a stage.Arg, fd stage.Slot) {
	rec := c.Slots(stage.RecordSize / 8)
	c.Move(rec, stage.Imm(k))
	c.Move(rec+1, a)
	c.sendFile(onErr, step, stage.FD(c.control), stage.SlotAddr(rec), stage.RecordSize, fd)
}

// sendFile sends a descriptor and some bytes.
func (c *compiler) sendFile(onErr *stage.Label, step stage.Step, socket, data stage.Arg, size int, fd stage.Arg) {
	cmsg := c.Slots(3) // a struct cmsghdr with one descriptor
	c.Move(cmsg, stage.Imm(unix.CmsgLen(4)))
	c.Move(cmsg+1, stage.Imm(unix.SOL_SOCKET|unix.SCM_RIGHTS<<32))
	c.Move(cmsg+2, fd)
	iov := stage.Vec{data, stage.Imm(size)}
	msg := stage.Vec{stage.Imm(0), stage.Imm(0), iov, stage.Imm(1), stage.SlotAddr(cmsg), stage.Imm(24), stage.Imm(0)}
	c.SysOr(onErr, stage.Discard, step, stage.Sendmsg, socket, msg, stage.Imm(0))
}

// winsize encodes a struct winsize.
func winsize(w unix.Winsize) stage.Blob {
	var b []byte
	for _, n := range []uint16{w.Row, w.Col, w.Xpixel, w.Ypixel} {
		b = binary.LittleEndian.AppendUint16(b, n)
	}
	return stage.Blob(b)
}

// limits lowers the spec's limits to what the caller itself may have.
func (s *Spec) limits() []pidone.Limit {
	out := make([]pidone.Limit, 0, len(s.Limits))
	for _, l := range s.Limits {
		var rl unix.Rlimit
		if unix.Getrlimit(l.Resource, &rl) == nil {
			l.Hard = min(l.Hard, rl.Max)
		}
		l.Soft = min(l.Soft, l.Hard)
		out = append(out, l)
	}
	return out
}
