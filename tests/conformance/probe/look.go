//go:build linux && (amd64 || arm64)

package main

import (
	"fmt"
	"net"
	"os"
	"sort"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/populationgenomics/postern-go/tests/conformance/internal/wire"
)

// highestFD bounds the search for open descriptors; the harness never passes a higher one.
const highestFD = 255

func look(q wire.Question) wire.Answer {
	a := wire.Answer{
		Argv: os.Args, Env: os.Environ(),
		PID: os.Getpid(), PPID: os.Getppid(),
		UID: os.Getuid(), EUID: os.Geteuid(), GID: os.Getgid(), EGID: os.Getegid(),
		Dumpable:    prctl(unix.PR_GET_DUMPABLE),
		Securebits:  prctl(unix.PR_GET_SECUREBITS),
		DeathSignal: prctlInt(unix.PR_GET_PDEATHSIG),
		Subreaper:   prctlInt(unix.PR_GET_CHILD_SUBREAPER),
		Rlimits:     rlimits(),
		Files:       map[string]wire.File{},
		Writable:    map[string]string{},
	}
	a.Groups, _ = os.Getgroups()
	sort.Ints(a.Groups)
	a.Hostname, _ = os.Hostname()
	a.Cwd = cwd()
	a.Umask = unix.Umask(0)
	unix.Umask(a.Umask)
	a.Nice, _ = unix.Getpriority(unix.PRIO_PROCESS, 0)
	a.Blocked, a.Ignored = signals()
	for _, path := range q.OpenForWriting {
		a.Writable[path] = openForWriting(path)
	}
	walker{question: q, files: a.Files}.all()
	a.Interfaces = interfaces()
	a.Loopback = loopback()
	a.NewUserNamespace = newUserNamespace()
	a.Terminal = terminal()
	comm, _ := os.ReadFile("/proc/1/comm")
	a.InitComm = strings.TrimSpace(string(comm))
	self, _ := os.Readlink("/proc/self")
	a.ProcSelf = self == strconv.Itoa(a.PID)
	return a
}

func prctl(option int) int {
	value, err := unix.PrctlRetInt(option, 0, 0, 0, 0)
	if err != nil {
		return -1
	}
	return value
}

// prctlInt is for the options that store their result.
func prctlInt(option int) int {
	var value int32
	if unix.Prctl(option, uintptr(pointer(&value)), 0, 0, 0) != nil {
		return -1
	}
	return int(value)
}

// cwd asks the kernel; os.Getwd would believe $PWD.
func cwd() string {
	buf := make([]byte, unix.PathMax)
	n, err := unix.Getcwd(buf)
	if err != nil {
		return "error: " + err.Error()
	}
	return string(buf[:n-1])
}

func signals() (blocked, ignored []int) {
	for sig := 1; sig <= 64; sig++ {
		if entryMask&(1<<(sig-1)) != 0 {
			blocked = append(blocked, sig)
		}
		if entryActions[sig][0] == 1 { // SIG_IGN
			ignored = append(ignored, sig)
		}
	}
	return blocked, ignored
}

func rlimits() map[int][2]uint64 {
	limits := map[int][2]uint64{}
	for resource := 0; resource <= unix.RLIMIT_RTTIME; resource++ {
		var limit unix.Rlimit
		if unix.Prlimit(0, resource, nil, &limit) == nil {
			limits[resource] = [2]uint64{limit.Cur, limit.Max}
		}
	}
	limits[unix.RLIMIT_NOFILE] = entryNofile
	return limits
}

func openFDs() map[int]wire.FD {
	fds := map[int]wire.FD{}
	for fd := 0; fd <= highestFD; fd++ {
		var st unix.Stat_t
		if unix.Fstat(fd, &st) != nil {
			continue
		}
		flags, _ := unix.FcntlInt(uintptr(fd), unix.F_GETFL, 0)
		cloexec, _ := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0)
		text := [...]string{"r", "w", "rw", "?"}[flags&unix.O_ACCMODE]
		if flags&unix.O_PATH != 0 {
			text = "path"
		}
		if flags&unix.O_NONBLOCK != 0 {
			text += ",nonblock"
		}
		if flags&unix.O_APPEND != 0 {
			text += ",append"
		}
		if cloexec != 0 {
			text += ",cloexec"
		}
		fds[fd] = wire.FD{FileID: wire.FileID{Dev: st.Dev, Ino: st.Ino}, Type: typeName(st.Mode), Flags: text}
	}
	return fds
}

func openForWriting(path string) string {
	fd, err := unix.Open(path, unix.O_WRONLY|unix.O_NONBLOCK|unix.O_NOCTTY|unix.O_CLOEXEC, 0)
	if err != nil {
		return err.Error()
	}
	unix.Close(fd)
	return "ok"
}

func interfaces() map[string]string {
	all, err := net.Interfaces()
	if err != nil {
		return map[string]string{"error": err.Error()}
	}
	result := map[string]string{}
	for _, i := range all {
		addresses, _ := i.Addrs()
		var texts []string
		for _, a := range addresses {
			texts = append(texts, a.String())
		}
		sort.Strings(texts)
		result[i.Name] = fmt.Sprintf("%v %v", i.Flags, texts)
	}
	return result
}

func loopback() string {
	listener, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		return reason(err)
	}
	defer listener.Close()
	conn, err := net.Dial("tcp4", listener.Addr().String())
	if err != nil {
		return reason(err)
	}
	conn.Close()
	return "ok"
}

// reason drops the addresses of a network error.
func reason(err error) string {
	text := err.Error()
	return text[strings.LastIndex(text, ": ")+1:]
}

// newUserNamespace learns whether clone would make one. The child is never started, because the program does
// not exist.
func newUserNamespace() string {
	_, err := syscall.ForkExec("/nonexistent/probe", nil, &syscall.ProcAttr{
		Sys: &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWUSER},
	})
	if err == syscall.ENOENT {
		return "ok"
	}
	return err.Error()
}

func terminal() string {
	if _, err := unix.IoctlGetTermios(1, unix.TCGETS); err != nil {
		return ""
	}
	text := "unnamed"
	if name, err := os.Readlink("/proc/self/fd/1"); err == nil {
		text = name
	}
	if tty, err := os.OpenFile("/dev/tty", os.O_RDWR, 0); err == nil {
		tty.Close()
		text += ", controlling"
	}
	letter := byte('x')
	if _, _, errno := unix.Syscall(unix.SYS_IOCTL, 1, unix.TIOCSTI, uintptr(pointer(&letter))); errno != 0 {
		return text + ", TIOCSTI: " + errno.Error()
	}
	return text + ", TIOCSTI works"
}
