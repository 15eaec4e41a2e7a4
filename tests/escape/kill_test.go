//go:build linux

package escape

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/populationgenomics/postern-go"
	"github.com/populationgenomics/postern-go/hatch"
	"github.com/populationgenomics/postern-go/internal/testutil"
	"github.com/populationgenomics/postern-go/internal/testutil/guest"
	"github.com/populationgenomics/postern-go/nsexec"
	"golang.org/x/sys/unix"
)

// The processes of these guests hold the write end of a pipe, so that its end
// of file tells the test that none of them is left. To tell one that is, it
// answers what the test writes to another pipe.

// stubborn leaves a process behind that does all it can to stay: it has another
// parent, session and process group, ignores every signal and wants none at its
// parent's end. The first process goes on if it is told to.
var stubborn = guest.Probe("stubborn", func(args []string) {
	cmd := exec.Command(guestOrHost(), "again")
	cmd.Env = append(os.Environ(), guest.ProbeEnv(stubbornMiddle))
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	if err := cmd.Run(); err != nil {
		fmt.Println(err)
	}
	switch args[0] {
	case "stay":
		select {}
	case "freeze":
		unix.Kill(-1, unix.SIGSTOP)
		unix.Kill(os.Getpid(), unix.SIGSTOP)
	}
})

// guestOrHost is this program.
func guestOrHost() string {
	if os.Getpid() < 100 { // in a guest; proc names a path of the host's
		return guestSelf
	}
	return "/proc/self/exe"
}

var stubbornMiddle = guest.Probe("stubborn, middle", func([]string) {
	cmd := exec.Command(guestOrHost(), "again")
	cmd.Env = append(os.Environ(), guest.ProbeEnv(stubbornEnd))
	cmd.Stdin, cmd.Stdout = os.Stdin, os.Stdout
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	said, err := cmd.StderrPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		fmt.Println(err)
		return
	}
	bufio.NewReader(said).ReadByte() // it is ready
})

var stubbornEnd = guest.Probe("stubborn, end", func([]string) {
	signal.Ignore()
	unix.Prctl(unix.PR_SET_PDEATHSIG, 0, 0, 0, 0)
	fmt.Println("ready")
	os.Stderr.Write([]byte("x"))
	os.Stderr.Close()
	if _, err := bufio.NewReader(os.Stdin).ReadByte(); err == nil {
		fmt.Println("alive")
	}
})

// A stray is what is known of such a process.
type stray struct {
	said *bufio.Reader
	ask  *os.File
}

// pipes gives a launch the two pipes.
func (s *stray) pipes(t *testing.T) (stdin, stdout *os.File) {
	t.Helper()
	in, ask, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	out, say, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ask.Close(); out.Close() })
	*s = stray{bufio.NewReader(out), ask}
	return in, say
}

func (s *stray) ready(t *testing.T) {
	t.Helper()
	if line, err := s.said.ReadString('\n'); line != "ready\n" {
		t.Fatalf("the guest says %q, %v", line, err)
	}
}

// gone returns when no process has the pipe any more, and whether one said
// anything.
func (s *stray) gone(t *testing.T) {
	t.Helper()
	if rest, err := io.ReadAll(s.said); len(rest) > 0 || err != nil {
		t.Errorf("something is left and says %q, %v", rest, err)
	}
}

// alive reports whether the process is there.
func (s *stray) alive() bool {
	s.ask.Write([]byte("?"))
	line, _ := s.said.ReadString('\n')
	return line == "alive\n"
}

// noPIDNS lets a guest's processes be like any of the host's.
var noPIDNS = layer{"PID namespace", func(s *nsexec.Spec) {
	s.Namespaces.PID, s.Init, s.Mounts = nsexec.Share, false, nil
	s.Namespaces.Mount = nsexec.Share
	s.Dir, s.Seccomp = "/", nil
	s.Path = "/proc/self/exe"
}}

func TestNothingOutlivesARun(t *testing.T) {
	testutil.EachUser(t, func(t *testing.T) {
		start := func(t *testing.T, how string, off ...layer) (*nsexec.Process, *stray) {
			s := spec(t, wall(t), stubborn, how)
			for _, l := range off {
				l.off(s)
				s.Path = hostSelf(t)
			}
			var left stray
			s.Stdin, s.Stdout = left.pipes(t)
			p, err := nsexec.Start(s)
			s.Stdin.Close()
			s.Stdout.Close()
			if err != nil {
				t.Fatal(err)
			}
			left.ready(t)
			return p, &left
		}
		end := func(t *testing.T, p *nsexec.Process, left *stray) {
			left.gone(t)
			<-p.Done()
		}
		t.Run("its program ends", func(t *testing.T) {
			p, left := start(t, "exit")
			end(t, p, left)
		})
		t.Run("it is killed", func(t *testing.T) {
			p, left := start(t, "stay")
			if err := p.Signal(unix.SIGKILL); err != nil {
				t.Error(err)
			}
			end(t, p, left)
		})
		t.Run("it is killed and has stopped itself", func(t *testing.T) {
			p, left := start(t, "freeze")
			if err := p.Signal(unix.SIGKILL); err != nil {
				t.Error(err)
			}
			end(t, p, left)
		})
		t.Run("the control", func(t *testing.T) {
			p, left := start(t, "exit", noPIDNS)
			<-p.Done()
			if !left.alive() {
				t.Error("without a PID namespace nothing is left either; this attack proves nothing")
			}
			left.gone(t)
		})
	})
}

// hostSelf is the path of this program.
func hostSelf(t testing.TB) string {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return exe
}

// doomedHost is a host that is killed while its guest runs. It starts it with
// its own standard streams.
var doomedHost = guest.Probe("doomed host", func(args []string) {
	s, err := profileHere().Spec([]string{guestSelf, args[0]})
	if err == nil {
		s.Env = append(s.Env, guest.ProbeEnv(stubborn))
		s.Stdin, s.Stdout = os.Stdin, os.Stdout
		if len(args) > 1 {
			noPIDNS.off(s)
			s.Path, _ = os.Executable()
		}
		var p *nsexec.Process
		if p, err = nsexec.Start(s); err == nil {
			<-p.Done()
			return
		}
	}
	fmt.Println(err)
})

// A host that is killed takes its guests with it, whatever they do.
func TestNothingOutlivesTheHost(t *testing.T) {
	testutil.EachUser(t, func(t *testing.T) {
		start := func(t *testing.T, args ...string) (*exec.Cmd, *stray) {
			var left stray
			cmd := hostCommand(doomedHost, args...)
			in, out := left.pipes(t)
			cmd.Stdin, cmd.Stdout = in, out
			err := cmd.Start()
			in.Close()
			out.Close()
			if err != nil {
				t.Fatal(err)
			}
			left.ready(t)
			return cmd, &left
		}
		for _, how := range []string{"stay", "freeze"} {
			t.Run(how, func(t *testing.T) {
				cmd, left := start(t, how)
				cmd.Process.Kill()
				cmd.Wait()
				left.gone(t)
			})
		}
		t.Run("the control", func(t *testing.T) {
			cmd, left := start(t, "exit", "control")
			cmd.Process.Kill()
			cmd.Wait()
			if !left.alive() {
				t.Error("without a PID namespace nothing is left either; this attack proves nothing")
			}
			left.gone(t)
		})
	})
}

// daemon dials the hatch, says hello and answers pings, long after the program
// that started it.
var daemon = guest.Probe("daemon", func(args []string) {
	if args[0] != "daemon" {
		cmd := exec.Command(guestOrHost(), "daemon", args[0])
		cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
		said, err := cmd.StdoutPipe()
		if err == nil {
			err = cmd.Start()
		}
		if err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		bufio.NewReader(said).ReadByte() // it is connected
		return
	}
	signal.Ignore()
	conn, err := net.Dial("unix", args[1])
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	fmt.Fprintln(conn, "hello")
	fmt.Println("connected")
	for in := bufio.NewReader(conn); ; {
		line, err := in.ReadString('\n')
		if err != nil {
			return
		}
		conn.Write([]byte(line))
	}
})

// A daemon that holds a connection through a hatch is gone with the run, and
// its connection with it.
func TestHatchOutlivedByNoDaemon(t *testing.T) {
	testutil.EachUser(t, func(t *testing.T) {
		h, err := hatch.NewSocket(hatch.SocketConfig{MaxConns: 4})
		if err != nil {
			t.Fatal(err)
		}
		defer h.Close()
		p := wall(t)
		s, err := postern.New(p, postern.WithHatch(h))
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		stop, err := h.Serve() // so that the connection does not end with the run's own
		if err != nil {
			t.Fatal(err)
		}
		defer stop()

		r, err := s.Run(t.Context(), probeArgs(daemon, hatch.GuestPath(""))...)
		if err != nil || !r.OK() {
			t.Fatalf("%v, %d: %s%s", err, r.ExitCode, r.Stdout, r.Stderr)
		}
		conn, err := h.Accept()
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		if all, err := io.ReadAll(conn); string(all) != "hello\n" {
			t.Errorf("the hatch hears %q, %v; want hello and the end", all, err)
		}

		// The control: such a daemon goes on where it can.
		cmd := hostCommand(daemon, h.SocketPath())
		if err := cmd.Run(); err != nil {
			t.Fatal(err)
		}
		conn2, err := h.Accept()
		if err != nil {
			t.Fatal(err)
		}
		defer conn2.Close()
		in := bufio.NewReader(conn2)
		for _, want := range []string{"hello\n", "ping\n"} {
			if want == "ping\n" {
				conn2.Write([]byte(want))
			}
			if line, err := in.ReadString('\n'); line != want {
				t.Errorf("a daemon on the host says %q, %v; this attack proves nothing", line, err)
			}
		}
	})
}

// A run that times out leaves nothing either.
func TestTimeOut(t *testing.T) {
	testutil.EachUser(t, func(t *testing.T) {
		var left stray
		p := wall(t)
		p.Timeout = 500 * time.Millisecond
		in, out := left.pipes(t)
		in.Close()
		sandbox, err := postern.New(p)
		if err != nil {
			t.Fatal(err)
		}
		defer sandbox.Close()
		// The guest holds its own standard output open as long as it can.
		r, err := sandbox.Run(t.Context(), "sh", "-c", `trap '' TERM INT HUP; (trap '' TERM; setsid sleep 1000 & sleep 1000) & echo started; kill -STOP $$; sleep 1000`)
		out.Close()
		if err != nil || r.Reason != postern.TimedOut || r.ExitCode != 124 || !strings.HasPrefix(string(r.Stdout), "started") {
			t.Errorf("%v, %+v", err, r)
		}
		left.gone(t)
	})
}
