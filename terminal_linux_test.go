package postern

import (
	"bytes"
	"context"
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/populationgenomics/postern-go/internal/testutil"
)

// terminal starts a command with a terminal of 30 by 100.
func terminal(t testing.TB, s *Sandbox, args ...string) *Process {
	t.Helper()
	return start(t, s, Command{Args: args, Terminal: &WindowSize{Rows: 30, Cols: 100}, Env: []string{"PS1=$ ", "HISTFILE="}})
}

// A session is a terminal's output so far.
type session struct {
	testing.TB
	p    *Process
	seen bytes.Buffer
}

// until reads until the output since the last call has want.
func (s *session) until(want string) string {
	s.Helper()
	for !strings.Contains(s.seen.String(), want) {
		more := false
		for _, b := range s.p.Output() {
			s.seen.Write(b)
			more = true
			break
		}
		if !more {
			s.Fatalf("the terminal closed without %q:\n%q", want, s.seen.String())
		}
	}
	got := s.seen.String()
	s.seen.Reset()
	return got
}

func (s *session) typeIn(text string) {
	s.Helper()
	if _, err := s.p.Stdin().Write([]byte(text)); err != nil {
		s.Fatal(err)
	}
}

// A shell on a terminal of its own has job control, Ctrl-C, Ctrl-Z and the
// size of the window, from the start and after a change.
func TestTerminal(t *testing.T) {
	testutil.EachUser(t, func(t *testing.T) {
		s := sandbox(t, Profile{})
		p := terminal(t, s, "bash", "--norc", "--noediting", "-i")
		c := &session{TB: t, p: p}
		if first := c.until("$ "); strings.Contains(first, "job control") {
			t.Errorf("bash complains: %q", first)
		}
		// The quotes keep the echo of what is typed from being taken for its
		// output.
		c.typeIn("tty; stty size; echo do''ne=$?\n")
		if got := c.until("done=0"); !strings.Contains(got, "/dev/pts/0\r\n30 100\r\n") {
			t.Errorf("got %q", got)
		}
		c.typeIn("trap 'echo winch=$(stty size)' WINCH; echo s''et=$?\n")
		c.until("set=0")
		if err := p.Resize(WindowSize{Rows: 50, Cols: 132}); err != nil {
			t.Fatal(err)
		}
		c.typeIn("\n") // a trap may wait for the end of a read
		c.until("winch=50 132")
		c.typeIn("sh -c 'echo as\"\"leep; exec sleep 1000'\n")
		c.until("asleep")
		c.typeIn("\x03") // Ctrl-C
		c.until("^C")
		c.typeIn("echo sta''tus=$?\n")
		c.until("status=130")
		c.typeIn("sh -c 'kill -STOP $$; echo res\"\"umed'\n")
		c.until("Stopped")
		c.typeIn("fg; echo sta''tus=$?\n")
		if got := c.until("status=0"); !strings.Contains(got, "resumed") {
			t.Errorf("after fg: %q", got)
		}
		c.typeIn("echo t''o-tty > /dev/tty\n")
		c.until("to-tty")
		c.typeIn("exit 9\n")
		if code := wait(t, p); code != 9 {
			t.Errorf("exit code %d", code)
		}
		if r, err := p.Communicate(context.Background()); err != nil || r.ExitCode != 9 {
			t.Errorf("%+v %v", r, err)
		}
	})
}

// A full-screen program.
func TestTerminalPrograms(t *testing.T) {
	s := sandbox(t, Profile{ReadOnlyBinds: []Bind{{Host: "/etc/alternatives"}}})
	vi := testutil.RequireTool(t, "vi")
	testutil.RequireTool(t, "less")
	os.WriteFile(s.Workspace()+"/long", []byte(strings.Repeat("a line\n", 100)), 0o666)
	c := &session{TB: t, p: terminal(t, s, "less", "long")}
	c.until("long") // its prompt
	c.typeIn("G")
	c.until("(END)")
	c.typeIn("q")
	if code := wait(t, c.p); code != 0 {
		t.Errorf("less: exit code %d", code)
	}
	c = &session{TB: t, p: terminal(t, s, vi, "-u", "NONE", "new")}
	c.until("~")
	c.typeIn("ihello from vi\x1b:wq\r")
	if code := wait(t, c.p); code != 0 {
		t.Errorf("vi: exit code %d", code)
	}
	if b, _ := os.ReadFile(s.Workspace() + "/new"); string(b) != "hello from vi\n" {
		t.Errorf("vi wrote %q", b)
	}
}

// Promises 98, 150: nobody types into a terminal, not even the guest's own,
// and the host's terminal is out of reach. The control has no filter: there the
// guest can type into its own terminal, at most.
func TestTerminalInjection(t *testing.T) {
	const inject = `import fcntl, os, errno
fd = os.open("/dev/tty", os.O_RDWR)
for req in (0x5412, 0x541C):
    try: fcntl.ioctl(fd, req, b"x"); print("typed")
    except OSError as e: print(errno.errorcode[e.errno])`
	try := func(p Profile) string {
		c := Python(inject)
		c.Terminal = &WindowSize{}
		r := run(t, sandbox(t, p), c)
		return strings.ReplaceAll(string(r.Stdout), "\r\n", " ")
	}
	if got := try(Profile{}); got != "EPERM EPERM " {
		t.Errorf("got %q", got)
	}
	if got := try(Profile{NoSeccomp: true}); strings.HasPrefix(got, "EPERM EPERM") {
		t.Errorf("the control got %q", got)
	}
	r := run(t, sandbox(t, Profile{}), Python("open('/dev/tty')"))
	if !strings.Contains(string(r.Stderr), "No such device or address") {
		t.Errorf("without a terminal: %s", r.Stderr)
	}
}

// A closed terminal and its process leave nothing, whatever is being read.
func TestTerminalClose(t *testing.T) {
	testutil.NoLeak(t, func() {
		s, err := New(Profile{})
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		p := terminal(t, s, "bash", "--norc", "-i")
		for range p.Output() {
			break
		}
		if p.Terminal() == nil {
			t.Error("no terminal")
		}
		p.Close()
		if _, err := p.Stdin().Write([]byte("x")); !errors.Is(err, os.ErrClosed) {
			t.Errorf("writing afterwards: %v", err)
		}
		q := start(t, s, Command{Args: []string{"true"}})
		if q.Terminal() != nil || q.Stdin() != nil || q.Resize(WindowSize{Rows: 1, Cols: 1}) == nil {
			t.Error("a process without a terminal has one")
		}
		q.Close()
	})
}

// A terminal that hangs up is the end of the output.
func TestTerminalTerminate(t *testing.T) {
	s := sandbox(t, Profile{})
	p := terminal(t, s, "sh", "-c", "trap 'echo cleaning; exit 3' TERM; echo ready; while :; do sleep 1000 & wait; done")
	await(t, p, "ready")
	p.Terminate(DefaultGrace)
	r, err := p.Communicate(context.Background())
	if err != nil || r.ExitCode != 3 || string(r.Stdout) != "cleaning\r\n" {
		t.Errorf("%d %q %v", r.ExitCode, r.Stdout, err)
	}
	p = terminal(t, s, "bash", "--norc", "-i") // which ignores SIGTERM
	await(t, p, "$ ")
	p.Terminate(20 * time.Millisecond)
	if code := wait(t, p); code != 137 {
		t.Errorf("exit code %d", code)
	}
}
