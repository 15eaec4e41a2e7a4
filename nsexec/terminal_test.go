//go:build linux

package nsexec_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/populationgenomics/postern-go/internal/testutil"
	"github.com/populationgenomics/postern-go/internal/testutil/guest"
	"github.com/populationgenomics/postern-go/mounts"
	"github.com/populationgenomics/postern-go/nsexec"
	"github.com/populationgenomics/postern-go/seccompbpf"
	"golang.org/x/sys/unix"
)

// terminal starts a guest on a terminal of its own.
func terminal(t *testing.T, s *nsexec.Spec) (*nsexec.Process, *bufio.Reader) {
	t.Helper()
	s.Terminal = true
	s.Env = append(s.Env, "TERM=dumb", `PS1=prompt\n`)
	p, err := nsexec.Start(s)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		p.Signal(unix.SIGKILL)
		<-p.Done()
		p.Terminal().Close()
	})
	return p, bufio.NewReader(p.Terminal())
}

// until reads up to a line that contains a text and returns it.
func until(t *testing.T, r *bufio.Reader, text string) (line, before string) {
	t.Helper()
	var b strings.Builder
	late := time.AfterFunc(20*time.Second, func() { panic(fmt.Sprintf("%q does not come after %q", text, b.String())) })
	defer late.Stop()
	for {
		l, err := r.ReadString('\n')
		if strings.Contains(l, text) {
			return strings.TrimSpace(l), b.String()
		}
		b.WriteString(l)
		if err != nil {
			t.Fatalf("%q did not come (%v) in %q", text, err, b.String())
		}
	}
}

func TestTerminalHasJobControl(t *testing.T) {
	testutil.RequireTool(t, "bash")
	testutil.EachUser(t, func(t *testing.T) {
		p, r := terminal(t, guest.Spec([]string{"bash", "--norc", "-i"}))
		tty := p.Terminal()
		until(t, r, "prompt")
		io.WriteString(tty, "tty; echo co''ntrol: $-\n")
		line, before := until(t, r, "control: ")
		if !strings.Contains(before, "/dev/pts/0") || strings.Contains(before, "no job control") || !strings.Contains(line, "m") {
			t.Errorf("%q %q", before, line)
		}
		// A job that is stopped, listed, continued and interrupted.
		until(t, r, "prompt")
		io.WriteString(tty, "sh -c 'echo star\"\"ted; exec cat'\n")
		until(t, r, "started")
		io.WriteString(tty, "back\n")
		until(t, r, "back") // by the terminal
		until(t, r, "back") // by cat: it is in the foreground
		tty.Write([]byte{'Z' - '@'})
		until(t, r, "Stopped")
		until(t, r, "prompt")
		io.WriteString(tty, "jobs; echo jo''bs done\n")
		if _, before := until(t, r, "jobs done"); !strings.Contains(before, "exec cat") {
			t.Errorf("%q", before)
		}
		until(t, r, "prompt")
		io.WriteString(tty, "fg\n")
		until(t, r, "exec cat")
		io.WriteString(tty, "again\n")
		until(t, r, "again")
		until(t, r, "again") // by cat
		tty.Write([]byte{'C' - '@'})
		until(t, r, "prompt")
		io.WriteString(tty, "echo in''terrupted $?\n")
		if line, _ := until(t, r, "interrupted"); !strings.HasSuffix(line, "interrupted 130") {
			t.Errorf("%q", line)
		}
		io.WriteString(tty, "exit 6\n")
		if st, err := p.Wait(context.Background()); err != nil || st.ExitCode != 6 {
			t.Errorf("%+v %v", st, err)
		}
	})
}

func TestTerminalSize(t *testing.T) {
	testutil.EachUser(t, func(t *testing.T) {
		s := guest.Shell("trap 'echo resized; stty size' WINCH; stty size; while :; do read x; done")
		s.TerminalSize = unix.Winsize{Row: 33, Col: 101}
		p, r := terminal(t, s)
		until(t, r, "33 101")
		if err := unix.IoctlSetWinsize(int(p.Terminal().Fd()), unix.TIOCSWINSZ, &unix.Winsize{Row: 7, Col: 42}); err != nil {
			t.Fatal(err)
		}
		io.WriteString(p.Terminal(), "\n")
		until(t, r, "resized")
		until(t, r, "7 42")
	})
}

// The guest's own terminal takes no input from the guest under the filter, in
// any of the forms the kernel takes for the same call.
func TestTerminalInputCannotBeForged(t *testing.T) {
	testutil.EachUser(t, func(t *testing.T) {
		s := guest.ProbeSpec(t, forgeProbe, nil)
		s.Seccomp = []seccompbpf.Filter{seccompbpf.HardenedFilter()}
		_, r := terminal(t, s)
		if line, _ := until(t, r, "forged:"); line != "forged: operation not permitted, operation not permitted, operation not permitted" {
			t.Errorf("%q", line)
		}
		// The control: without the filter the first two work, if the kernel
		// still has that.
		if b, err := os.ReadFile("/proc/sys/dev/tty/legacy_tiocsti"); err == nil && strings.TrimSpace(string(b)) == "1" {
			_, r := terminal(t, guest.ProbeSpec(t, forgeProbe, nil))
			if line, _ := until(t, r, "forged:"); !strings.Contains(line, "forged: errno 0, errno 0, ") {
				t.Errorf("without the filter: %q", line)
			}
		}
		// And a host's terminal as standard input is out of reach without one:
		// it does not control the guest's session.
		master, peer := openPTY(t)
		defer master.Close()
		defer peer.Close()
		s = guest.ProbeSpec(t, forgeProbe, nil)
		s.Stdin = peer
		if r := guest.Run(t, s); !strings.Contains(r.Out, "forged: operation not permitted, operation not permitted") {
			t.Errorf("on the host's terminal: %q", r.Out)
		}
	})
}

var forgeProbe = guest.Probe("forge", func([]string) {
	c := byte('x')
	var got []string
	for _, call := range []uintptr{unix.TIOCSTI, unix.TIOCSTI | 1<<32, unix.TIOCLINUX} {
		_, _, errno := unix.Syscall(unix.SYS_IOCTL, 0, call, uintptrOf(&c))
		got = append(got, errno.Error())
	}
	fmt.Println("forged: " + strings.Join(got, ", "))
})

func TestTerminalNeedsDevpts(t *testing.T) {
	s := guest.Shell("true")
	s.Terminal = true
	s.Mounts.Ops = append(s.Mounts.Ops, mounts.Tmpfs{Dest: "/dev"})
	testutil.NoLeak(t, func() {
		_, err := nsexec.Start(s)
		var se *nsexec.StartError
		if !errors.As(err, &se) || se.Step != nsexec.DoTerminal || se.Errno != unix.ENOENT {
			t.Errorf("%v", err)
		}
	})
}
