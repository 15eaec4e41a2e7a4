//go:build linux

package escape

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"
	"unsafe"

	"github.com/populationgenomics/postern-go/internal/testutil"
	"github.com/populationgenomics/postern-go/internal/testutil/guest"
	"github.com/populationgenomics/postern-go/nsexec"
	"golang.org/x/sys/unix"
)

// A guest that has a terminal of the host's as standard input.
var ttyAttacks = attacks("tty",
	attack{name: "line discipline", do: setLineDiscipline(unix.TIOCSETD), blocked: []string{"EPERM"}, layers: []layer{seccomp}, alter: onTerminal},
	attack{name: "line discipline with a high bit", do: setLineDiscipline(unix.TIOCSETD | 1<<40), blocked: []string{"EPERM"}, layers: []layer{seccomp}, alter: onTerminal},
)

func TestTerminalOfTheHost(t *testing.T) { run(t, "tty", ttyAttacks) }

func setLineDiscipline(cmd uintptr) func() error {
	return func() error {
		n := int32(0) // N_TTY, the one it has
		return errnoOf(unix.SYS_IOCTL, 0, cmd, uintptr(unsafe.Pointer(&n)))
	}
}

// typeInto types a line into standard input.
func typeInto(cmd uintptr) func() error {
	return func() error {
		for _, c := range []byte("x\n") {
			if err := errnoOf(unix.SYS_IOCTL, 0, cmd, uintptr(unsafe.Pointer(&c))); err != nil {
				return err
			}
		}
		return nil
	}
}

// onTerminal makes a pseudo-terminal of the host standard input.
func onTerminal(t *testing.T, s *nsexec.Spec) {
	_, tty := openPTY(t)
	s.Stdin = tty
}

// openPTY opens a pseudo-terminal that is nobody's controlling terminal.
func openPTY(t *testing.T) (master, tty *os.File) {
	t.Helper()
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { master.Close() })
	fd := master.Fd()
	if err := unix.IoctlSetPointerInt(int(fd), unix.TIOCSPTLCK, 0); err != nil {
		t.Fatal(err)
	}
	peer, _, errno := unix.Syscall(unix.SYS_IOCTL, fd, unix.TIOCGPTPEER, unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC)
	if errno != 0 {
		t.Fatal(errno)
	}
	tty = os.NewFile(peer, "tty")
	t.Cleanup(func() { tty.Close() })
	return master, tty
}

// typeProbe types into descriptor 0, in all the ways there are.
var typeProbe = guest.Probe("type", func([]string) {
	var said []string
	for _, cmd := range []uintptr{unix.TIOCSTI, unix.TIOCSTI | 1<<32, unix.TIOCSTI | 0xffffffff<<32} { // CVE-2017-5226, CVE-2019-10063
		said = append(said, outcome(typeInto(cmd)()))
	}
	c := byte(2) // TIOCL_SETSEL and its like
	for _, cmd := range []uintptr{tioclinux, tioclinux | 1<<32} {
		said = append(said, outcome(errnoOf(unix.SYS_IOCTL, 0, cmd, uintptr(unsafe.Pointer(&c)))))
	}
	fmt.Print(strings.Join(said, " "))
})

const (
	typed   = "EPERM EPERM EPERM EPERM EPERM"
	typedIn = "got through got through got through ENOTTY ENOTTY" // there is no console behind a pseudo-terminal
)

const tioclinux = 0x541c

// A guest with a controlling terminal cannot even type into that.
func TestControllingTerminal(t *testing.T) {
	testutil.EachUser(t, func(t *testing.T) {
		attempt := func(off ...layer) string {
			s := spec(t, wall(t), typeProbe)
			s.Terminal, s.NewSession = true, false
			for _, l := range off {
				l.off(s)
			}
			return onItsTerminal(t, s)
		}
		if got, want := attempt(), typed; got != want {
			t.Errorf("behind the wall: %s, want %s", got, want)
		}
		if got, want := attempt(seccomp), typedIn; got != want && legacyTIOCSTI() {
			t.Errorf("without seccomp: %s, want %s; this attack proves nothing", got, want)
		}
	})
}

// legacyTIOCSTI reports whether the kernel lets anybody type at all.
func legacyTIOCSTI() bool {
	b, err := os.ReadFile("/proc/sys/dev/tty/legacy_tiocsti")
	if err != nil {
		return true // older kernels always allow it
	}
	return strings.TrimSpace(string(b)) == "1"
}

// onItsTerminal runs a guest that has a terminal and returns the last line it
// prints.
func onItsTerminal(t *testing.T, s *nsexec.Spec) string {
	t.Helper()
	p, err := nsexec.Start(s)
	if err != nil {
		t.Fatal(err)
	}
	tty := p.Terminal()
	defer tty.Close()
	var b strings.Builder
	buf := make([]byte, 4096)
	for {
		n, err := tty.Read(buf)
		b.Write(buf[:n])
		if err != nil {
			break // EIO: everybody has closed the other side
		}
	}
	<-p.Done()
	said := strings.ReplaceAll(b.String(), "\r\n", "\n")
	return strings.TrimSpace(said[strings.LastIndexByte(strings.TrimRight(said, "\n"), '\n')+1:])
}

// sessionProbe says whether there is a controlling terminal.
var sessionProbe = guest.Probe("session", func([]string) {
	sid, err := unix.Getsid(0)
	fd, open := unix.Open("/dev/tty", unix.O_RDWR|unix.O_CLOEXEC, 0)
	if open == nil {
		unix.Close(fd)
	}
	fmt.Println(sid, outcome(err), outcome(open))
})

// A guest is not in the session of its host, whose terminal it could reach by
// /dev/tty, and type into.
func TestSession(t *testing.T) {
	testutil.EachUser(t, func(t *testing.T) {
		attempt := func(what string, off ...layer) string {
			_, tty := openPTY(t)
			args := []string{what}
			for _, l := range off {
				args = append(args, l.name)
			}
			cmd := hostCommand(terminalHost, args...)
			cmd.Stdin = tty
			cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
			out, err := cmd.Output()
			if err != nil {
				t.Fatal(err)
			}
			return strings.TrimSpace(string(out))
		}
		if got, want := attempt(sessionProbe), "1 got through ENXIO"; got != want {
			t.Errorf("session, its ID, /dev/tty: %q, want %q", got, want)
		}
		if got, want := attempt(sessionProbe, session), "0 got through got through"; got != want {
			t.Errorf("without a session of its own: %q, want %q; this attack proves nothing", got, want)
		}
		for _, alone := range []struct {
			holds layer
			off   []layer
		}{{session, []layer{seccomp}}, {seccomp, []layer{session}}} {
			if got := attempt(typeProbe, alone.off...); !strings.HasPrefix(got, "EPERM EPERM EPERM ") {
				t.Errorf("typing with only %q to hold it: %s", alone.holds.name, got)
			}
		}
		if got := attempt(typeProbe, seccomp, session); got != typedIn && legacyTIOCSTI() {
			t.Errorf("typing without what holds it: %s, want %s; this attack proves nothing", got, typedIn)
		}
	})
}

// terminalHost is a host with a controlling terminal, which it gives its guest
// as standard input.
var terminalHost = guest.Probe("terminal host", func(args []string) {
	s, err := profileHere().Spec([]string{guestSelf})
	if err == nil {
		s.Env = append(s.Env, guest.ProbeEnv(args[0]))
		s.Stdin = os.Stdin
		for _, l := range []layer{session, seccomp} {
			if slices.Contains(args[1:], l.name) {
				l.off(s)
			}
		}
		var r guest.Result
		r, err = guest.Try(s)
		fmt.Print(r.Out)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
})
