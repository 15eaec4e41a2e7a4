package connector

import (
	"bytes"
	"crypto/rand"
	"debug/elf"
	"errors"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/populationgenomics/postern-go/hatch"
	"github.com/populationgenomics/postern-go/internal/testutil"
)

func TestMain(m *testing.M) { os.Exit(testutil.Main(m)) }

// A machine runs connectors: this one, or another architecture's by emulator.
type machine struct {
	name string
	argv []string // what the socket's path follows
}

// onEach runs a test with the connectors of both architectures.
func onEach(t *testing.T, f func(t *testing.T, m machine)) {
	dir := t.TempDir()
	image, err := Image()
	if err != nil {
		t.Fatal(err)
	}
	native := filepath.Join(dir, "connect")
	if err := os.WriteFile(native, image, 0o755); err != nil {
		t.Fatal(err)
	}
	t.Run("native", func(t *testing.T) { f(t, machine{"native", []string{native}}) })
	t.Run("arm64", func(t *testing.T) {
		qemu := testutil.RequireTool(t, "qemu-aarch64-static")
		emit := filepath.Join(dir, "emit")
		build := exec.Command("go", "build", "-o", emit, "./testdata/emit")
		build.Env = append(os.Environ(), "GOARCH=arm64", "CGO_ENABLED=0")
		if out, err := build.CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		foreign := filepath.Join(dir, "connect-arm64")
		image, err := exec.Command(qemu, emit).Output()
		if err == nil {
			err = os.WriteFile(foreign, image, 0o755)
		}
		if err != nil {
			t.Fatal(err)
		}
		if f, err := elf.NewFile(bytes.NewReader(image)); err != nil || f.Machine != elf.EM_AARCH64 {
			t.Fatalf("not a program for arm64: %v", err)
		}
		f(t, machine{"arm64", []string{qemu, foreign}})
	})
}

func (m machine) command(args ...string) *exec.Cmd {
	argv := append(m.argv[:len(m.argv):len(m.argv)], args...)
	return exec.Command(argv[0], argv[1:]...)
}

// listen returns a socket and the path of it.
func listen(t *testing.T) (*net.UnixListener, string) {
	t.Helper()
	dir, err := os.MkdirTemp("/tmp", "postern-") // short, as paths of sockets must be
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	path := filepath.Join(dir, "s")
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return l, path
}

// A session is a connector that runs, and the peer it has connected to.
type session struct {
	t      *testing.T
	cmd    *exec.Cmd
	peer   *net.UnixConn
	stdin  io.WriteCloser
	stdout io.ReadCloser
	stderr bytes.Buffer
}

func connect(t *testing.T, m machine) *session {
	t.Helper()
	l, path := listen(t)
	s := &session{t: t, cmd: m.command(path)}
	var err error
	if s.stdin, err = s.cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	if s.stdout, err = s.cmd.StdoutPipe(); err != nil {
		t.Fatal(err)
	}
	s.cmd.Stderr = &s.stderr
	if err := s.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.cmd.Process.Kill(); s.cmd.Wait() })
	if s.peer, err = l.AcceptUnix(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.peer.Close() })
	return s
}

// ends waits for the connector and checks its exit status and stderr.
func (s *session) ends(status int, stderr string) {
	s.t.Helper()
	s.cmd.Wait()
	if got := s.cmd.ProcessState.ExitCode(); got != status || !strings.Contains(s.stderr.String(), stderr) || stderr == "" && s.stderr.Len() > 0 {
		s.t.Errorf("ended with %v, %q; want %d, %q", s.cmd.ProcessState, s.stderr.String(), status, stderr)
	}
}

func (s *session) read(r io.Reader) string {
	s.t.Helper()
	b, err := io.ReadAll(r)
	if err != nil {
		s.t.Error(err)
	}
	return string(b)
}

// The connector is a static executable of a few KiB.
func TestSize(t *testing.T) {
	image, err := Image()
	if err != nil {
		t.Fatal(err)
	}
	const most = 16 << 10
	if len(image) > most {
		t.Errorf("%d bytes", len(image))
	}
	f, err := elf.NewFile(bytes.NewReader(image))
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range f.Progs {
		if p.Type == elf.PT_INTERP || p.Type == elf.PT_DYNAMIC || p.Flags&(elf.PF_W|elf.PF_X) == elf.PF_W|elf.PF_X {
			t.Errorf("segment %v", p.ProgHeader)
		}
	}
}

// Promise 222: both directions at once, and neither waits for the other.
func TestBothDirections(t *testing.T) {
	onEach(t, func(t *testing.T, m machine) {
		s := connect(t, m)
		up, down := make([]byte, 5<<20+13), make([]byte, 7<<20+1)
		rand.Read(up)
		rand.Read(down)
		results := make(chan error, 2)
		go func() {
			_, err := s.stdin.Write(up)
			results <- errors.Join(err, s.stdin.Close())
		}()
		go func() {
			_, err := s.peer.Write(down)
			results <- errors.Join(err, s.peer.CloseWrite())
		}()
		sent := make(chan string)
		go func() { sent <- s.read(s.peer) }()
		if got := s.read(s.stdout); got != string(down) {
			t.Errorf("%d bytes arrived at standard output, of %d", len(got), len(down))
		}
		if got := <-sent; got != string(up) {
			t.Errorf("%d bytes arrived at the socket, of %d", len(got), len(up))
		}
		for range 2 {
			if err := <-results; err != nil {
				t.Error(err)
			}
		}
		s.ends(0, "")
	})
}

func TestHalfCloseOfStandardInput(t *testing.T) {
	onEach(t, func(t *testing.T, m machine) {
		s := connect(t, m)
		io.WriteString(s.stdin, "question")
		s.stdin.Close()
		if got := s.read(s.peer); got != "question" {
			t.Errorf("the peer got %q", got)
		}
		io.WriteString(s.peer, "answer")
		s.peer.Close()
		if got := s.read(s.stdout); got != "answer" {
			t.Errorf("standard output has %q", got)
		}
		s.ends(0, "")
	})
}

func TestHalfCloseOfTheSocket(t *testing.T) {
	onEach(t, func(t *testing.T, m machine) {
		s := connect(t, m)
		io.WriteString(s.peer, "greeting")
		s.peer.CloseWrite()
		if got := s.read(s.stdout); got != "greeting" {
			t.Errorf("standard output has %q", got)
		}
		io.WriteString(s.stdin, "still here")
		s.stdin.Close()
		if got := s.read(s.peer); got != "still here" {
			t.Errorf("the peer got %q", got)
		}
		s.ends(0, "")
	})
}

// A peer that is gone ends the connector, whatever becomes of its input.
func TestPeerGone(t *testing.T) {
	onEach(t, func(t *testing.T, m machine) {
		s := connect(t, m)
		io.WriteString(s.peer, "bye")
		s.peer.Close()
		if got := s.read(s.stdout); got != "bye" {
			t.Errorf("standard output has %q", got)
		}
		s.ends(0, "")
	})
}

// What the peer said before it went away arrives although nothing can be sent.
func TestRefusedInputLosesNoOutput(t *testing.T) {
	onEach(t, func(t *testing.T, m machine) {
		s := connect(t, m)
		io.WriteString(s.peer, "no")
		s.peer.CloseRead()
		if _, err := s.stdin.Write(make([]byte, 1<<20)); !errors.Is(err, unix.EPIPE) {
			t.Errorf("the input was not closed: %v", err)
		}
		io.WriteString(s.peer, " more")
		s.peer.Close()
		if got := s.read(s.stdout); got != "no more" {
			t.Errorf("standard output has %q", got)
		}
		s.ends(0, "")
	})
}

// A peer that dies with input unread resets the connection, and that is no
// end of file.
func TestReset(t *testing.T) {
	onEach(t, func(t *testing.T, m machine) {
		s := connect(t, m)
		io.WriteString(s.stdin, "request")
		raw, err := s.peer.SyscallConn()
		if err != nil {
			t.Fatal(err)
		}
		if err := raw.Read(func(fd uintptr) bool { // until it is there, unread
			_, _, err := unix.Recvfrom(int(fd), make([]byte, 1), unix.MSG_PEEK)
			return err != unix.EAGAIN
		}); err != nil {
			t.Fatal(err)
		}
		s.peer.Close()
		s.read(s.stdout)
		s.ends(1, "Connection reset by peer\n")
	})
}

// Somebody else may have made the standard streams non-blocking, whose writes
// then are partial.
func TestNonBlockingStreams(t *testing.T) {
	onEach(t, func(t *testing.T, m machine) {
		l, path := listen(t)
		var in, out [2]int
		for _, p := range []*[2]int{&in, &out} {
			if err := unix.Pipe2(p[:], unix.O_CLOEXEC|unix.O_NONBLOCK); err != nil {
				t.Fatal(err)
			}
		}
		childIn, childOut := os.NewFile(uintptr(in[0]), "in"), os.NewFile(uintptr(out[1]), "out")
		write, read := os.NewFile(uintptr(in[1]), "write"), os.NewFile(uintptr(out[0]), "read")
		defer write.Close()
		defer read.Close()
		cmd := m.command(path)
		cmd.Stdin, cmd.Stdout = childIn, childOut
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		// Fd, which Start calls, has made them blocking.
		for _, fd := range []int{in[0], out[1]} {
			if err := unix.SetNonblock(fd, true); err != nil {
				t.Fatal(err)
			}
		}
		childIn.Close()
		childOut.Close()
		peer, err := l.AcceptUnix()
		if err != nil {
			t.Fatal(err)
		}
		defer peer.Close()
		data := make([]byte, 3<<20+7)
		rand.Read(data)
		go func() {
			write.Write(data)
			write.Close()
		}()
		go func() { // an echo
			io.Copy(peer, peer)
			peer.CloseWrite()
		}()
		got, err := io.ReadAll(read)
		if err != nil || !bytes.Equal(got, data) {
			t.Errorf("%d bytes came back, of %d: %v", len(got), len(data), err)
		}
		if err := cmd.Wait(); err != nil {
			t.Error(err)
		}
	})
}

func TestWrongArguments(t *testing.T) {
	onEach(t, func(t *testing.T, m machine) {
		dir := t.TempDir()
		file := filepath.Join(dir, "file")
		if err := os.WriteFile(file, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		long := strings.Repeat("x", hatch.MaxPath)
		for _, c := range []struct {
			args   []string
			status int
			stderr string
		}{
			{nil, 2, "usage: connect SOCKET\n"},
			{[]string{""}, 2, "usage: connect SOCKET\n"},
			{[]string{"a", "b"}, 2, "usage: connect SOCKET\n"},
			{[]string{"a", ""}, 2, "usage: connect SOCKET\n"},
			{[]string{strings.Repeat("x", 5000)}, 2, "usage: connect SOCKET\n"},
			{[]string{long + "x"}, 1, "connect: the path of the socket: File name too long\n"},
			{[]string{long}, 1, "connect: " + long + ": No such file or directory\n"},
			{[]string{dir + "/missing"}, 1, "connect: " + dir + "/missing: No such file or directory\n"},
			{[]string{file}, 1, "connect: " + file + ": Connection refused\n"},
		} {
			cmd := m.command(c.args...)
			var stderr bytes.Buffer
			cmd.Stderr = &stderr
			cmd.Run()
			if got := cmd.ProcessState.ExitCode(); got != c.status || stderr.String() != c.stderr {
				t.Errorf("%.80q: %v, %q; want %d, %q", c.args, cmd.ProcessState, stderr.String(), c.status, c.stderr)
			}
		}
	})
}

func TestWanted(t *testing.T) {
	if Wanted(nil) || Wanted([]hatch.Hatch{plain{}, wanting(false)}) || !Wanted([]hatch.Hatch{plain{}, wanting(true)}) {
		t.Error("not those that want it")
	}
}

type plain struct{ hatch.Hatch }

type wanting bool

func (wanting) Name() string           { return "" }
func (wanting) SocketPath() string     { return "" }
func (wanting) Serve() (func(), error) { return func() {}, nil }
func (wanting) Close() error           { return nil }
func (w wanting) WantsConnector() bool { return bool(w) }

// Promise 219.
func TestGitURL(t *testing.T) {
	if got, want := GitURL("repo"), "ext::/run/postern/connect /run/postern/repo.sock"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}
