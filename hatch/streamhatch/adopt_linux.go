package streamhatch

import (
	"os"
	"os/exec"
	"syscall"

	"golang.org/x/sys/unix"
)

func (c *Command) takeSysProcAttr(attr *syscall.SysProcAttr) error {
	if attr == nil {
		return nil
	}
	rest := *attr
	// A session or a group of its own, the command has anyway.
	rest.Credential, rest.Setsid, rest.Setpgid = nil, false, false
	cred := attr.Credential
	if !isZero(rest) || cred != nil && (len(cred.Groups) > 0 || cred.NoSetGroups) {
		return &CommandError{Field: "SysProcAttr", Reason: "has more than a Credential without Groups, Setsid and Setpgid"}
	}
	if cred != nil {
		c.User = &User{cred.Uid, cred.Gid}
	}
	return nil
}

// adopt checks a command that runs.
func (c *Command) adopt(cmd *exec.Cmd) error {
	if cmd.ProcessState != nil {
		return &CommandError{Field: "ProcessState", Reason: "is there: the command has been waited for"}
	}
	in, ok1 := cmd.Stdin.(*os.File)
	out, ok2 := cmd.Stdout.(*os.File)
	if !ok1 || !ok2 || in != out {
		return &CommandError{Field: "Stdin", Reason: "and Stdout of a running command must both be the one Stream.File"}
	}
	var err error
	if c.adoptedFor, err = in.Stat(); err != nil {
		return &CommandError{"Stdin", "must not be closed before FromCmd: " + err.Error(), err}
	}
	return c.takeStderr(cmd)
}

// adoptedProcess is a process that the handler started.
type adoptedProcess struct {
	cmd    *exec.Cmd
	group  bool // it leads a process group
	socket *os.File
	ended  chan struct{}
}

func (c *Command) startAdopted(socket *os.File) (process, error) {
	cmd := c.adopted
	if info, err := socket.Stat(); err != nil || !os.SameFile(info, c.adoptedFor) {
		socket.Close()
		c.abandon()
		return nil, &CommandError{"Stdin", "is not the connection that the command is returned for; it was killed", err}
	}
	p := &adoptedProcess{cmd: cmd, group: leadsGroup(cmd), socket: socket, ended: make(chan struct{})}
	go p.wait()
	return p, nil
}

func leadsGroup(cmd *exec.Cmd) bool {
	attr := cmd.SysProcAttr
	return attr != nil && (attr.Setsid || attr.Setpgid && attr.Pgid == 0)
}

// abandon ends a command that runs, but whose connection is over.
func (c *Command) abandon() {
	if c == nil || c.adopted == nil {
		return
	}
	p := &adoptedProcess{cmd: c.adopted, group: leadsGroup(c.adopted)}
	p.kill()
	c.adopted.Wait() // its error is that it was killed
}

func (p *adoptedProcess) wait() {
	defer close(p.ended)
	// While it is not reaped, its number is that of no other group.
	err := unix.Waitid(unix.P_PID, p.cmd.Process.Pid, nil, unix.WEXITED|unix.WNOWAIT, nil)
	for err == unix.EINTR {
		err = unix.Waitid(unix.P_PID, p.cmd.Process.Pid, nil, unix.WEXITED|unix.WNOWAIT, nil)
	}
	if p.group && err == nil {
		unix.Kill(-p.cmd.Process.Pid, unix.SIGKILL)
	}
	p.cmd.Wait() // its error is how the command ended, which is the guest's to know
	// What it has left behind may hold the socket. With input unread, though,
	// closing it is a reset, which shutting it down would hide.
	if unread, err := unix.IoctlGetInt(int(p.socket.Fd()), unix.SIOCINQ); err != nil || unread == 0 {
		unix.Shutdown(int(p.socket.Fd()), unix.SHUT_RDWR)
	}
	p.socket.Close()
}

func (p *adoptedProcess) terminate() { p.signal(unix.SIGTERM) }
func (p *adoptedProcess) kill()      { p.signal(unix.SIGKILL) }

func (p *adoptedProcess) signal(sig unix.Signal) {
	// Signal tells whether the process has been reaped, so that its number may
	// be another's.
	if err := p.cmd.Process.Signal(sig); err == nil && p.group {
		unix.Kill(-p.cmd.Process.Pid, sig)
	}
}

func (p *adoptedProcess) done() <-chan struct{} { return p.ended }
func (p *adoptedProcess) result() error         { return nil }
