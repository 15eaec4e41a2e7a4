package streamhatch

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/populationgenomics/postern-go/hatch/internal/hatchtest"
	"github.com/populationgenomics/postern-go/internal/testutil"
	"github.com/populationgenomics/postern-go/internal/testutil/guest"
)

// surroundings is what a command finds itself with.
type surroundings struct {
	Args, Env   []string
	Dir         string
	UID, GID    int
	Groups      []int
	Descriptors map[string]string
	SameSocket  bool
	Flags       int // of descriptor 0
	Owner       int // F_GETOWN
	Timeouts    []int64
	Stderr      string
	Session     bool // it is in a session that is not its host's
	PID         int
	Caps        string
	Net         bool // the network namespace is the host's
}

var surroundingsProbe = guest.Probe("surroundings", func(args []string) {
	var in, out unix.Stat_t
	unix.Fstat(0, &in)
	unix.Fstat(1, &out)
	s := surroundings{Args: args, Env: os.Environ(), UID: os.Getuid(), GID: os.Getgid(), PID: os.Getpid(), SameSocket: in.Ino == out.Ino && in.Mode&unix.S_IFMT == unix.S_IFSOCK}
	s.Dir, _ = os.Getwd()
	s.Groups, _ = os.Getgroups()
	s.Flags, _ = unix.FcntlInt(0, unix.F_GETFL, 0)
	s.Owner, _ = unix.FcntlInt(0, unix.F_GETOWN, 0)
	for _, o := range []int{unix.SO_RCVTIMEO, unix.SO_SNDTIMEO} {
		tv, _ := unix.GetsockoptTimeval(0, unix.SOL_SOCKET, o)
		s.Timeouts = append(s.Timeouts, tv.Nano())
	}
	s.Descriptors = map[string]string{}
	fds, _ := os.ReadDir("/proc/self/fd")
	for _, fd := range fds {
		target, err := os.Readlink("/proc/self/fd/" + fd.Name())
		runtime := strings.HasPrefix(target, "anon_inode:") || strings.HasPrefix(target, "/proc/") || strings.HasPrefix(target, "/sys/fs/cgroup/")
		if err == nil && fd.Name() > "2" && !runtime {
			s.Descriptors[fd.Name()] = target
		}
	}
	s.Stderr, _ = os.Readlink("/proc/self/fd/2")
	sid, _ := unix.Getsid(0)
	s.Session = sid != 0
	status, _ := os.ReadFile("/proc/self/status")
	for line := range strings.Lines(string(status)) {
		if caps, ok := strings.CutPrefix(line, "CapEff:"); ok {
			s.Caps = strings.TrimSpace(caps)
		}
	}
	json.NewEncoder(os.Stdout).Encode(s)
})

// look runs the probe as a command and returns what it found.
func look(t *testing.T, c *Command, guestSays string) surroundings {
	t.Helper()
	h := serving(t, c, Config{})
	conn := dial(t, h)
	if guestSays != "" {
		send(t, conn, guestSays)
	}
	conn.CloseWrite()
	var s surroundings
	if err := json.NewDecoder(conn).Decode(&s); err != nil {
		t.Fatal(err)
	}
	over(conn)
	h.Close()
	return s
}

// Promises 204, 205, 209, 210: the socket itself, in the shape of ordinary
// standard streams, and nothing of the guest's or of this process's around it.
func TestSurroundings(t *testing.T) {
	testutil.EachUser(t, func(t *testing.T) {
		t.Setenv("HOST_SECRET", "1")
		t.Chdir(t.TempDir())
		leak, err := os.Open(os.DevNull) // a descriptor that any child inherits
		if err != nil {
			t.Fatal(err)
		}
		defer leak.Close()
		if _, err := unix.FcntlInt(leak.Fd(), unix.F_SETFD, 0); err != nil {
			t.Fatal(err)
		}
		c := probeCommand(t, surroundingsProbe, "fixed")
		got := look(t, c, "--upload-pack=evil\nPATH=/evil\n../../\n")
		groups, err := os.Getgroups()
		if err != nil {
			t.Fatal(err)
		}
		if len(groups) == 0 {
			groups = nil
		}
		want := surroundings{
			Args: []string{"fixed"}, Env: c.Env, Dir: "/", UID: os.Getuid(), GID: os.Getgid(), Groups: got.Groups,
			Descriptors: map[string]string{}, SameSocket: true, Flags: unix.O_RDWR, Timeouts: []int64{0, 0},
			Stderr: os.DevNull, Session: true, PID: 2, Caps: got.Caps,
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
		if os.Getuid() == 0 && strings.Trim(got.Caps, "0") == "" {
			t.Error("root's command lacks root's rights")
		}
		if len(got.Groups) != len(groups) {
			t.Errorf("groups %v, this process has %v", got.Groups, groups)
		}
	})
}

// The defaults, seen by a command without any.
func TestExecDefaults(t *testing.T) {
	h := serving(t, Exec("sh", "-c", "env | sort; pwd; readlink /proc/$$/fd/2 || readlink /proc/self/fd/2"), Config{})
	c := dial(t, h)
	c.CloseWrite()
	expectEnd(t, c, "PATH="+DefaultPath+"\nPWD=/\n/\n/dev/null\n")
}

func TestEverythingGiven(t *testing.T) {
	testutil.EachUser(t, func(t *testing.T) {
		dir := t.TempDir()
		errFile, err := os.Create(filepath.Join(dir, "stderr"))
		if err != nil {
			t.Fatal(err)
		}
		defer errFile.Close()
		extra, err := os.CreateTemp(dir, "extra")
		if err != nil {
			t.Fatal(err)
		}
		defer extra.Close()
		extra.WriteString("from a file")
		extra.Seek(0, 0)
		c := shell("pwd; echo $A; cat <&3; echo oops >&2")
		c.Env, c.Dir, c.Stderr, c.Files = []string{"A=b", "PATH=" + DefaultPath}, dir, errFile, []*os.File{extra}
		conn := dial(t, serving(t, c, Config{}))
		conn.CloseWrite()
		expectEnd(t, conn, dir+"\nb\nfrom a file")
		if got, err := os.ReadFile(errFile.Name()); err != nil || string(got) != "oops\n" {
			t.Errorf("standard error has %q, %v", got, err)
		}
	})
}

// Promise 207, and other commands that cannot be.
func TestInvalidCommands(t *testing.T) {
	read, write, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer read.Close()
	defer write.Close()
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	socket, other := os.NewFile(uintptr(pair[0]), "a"), os.NewFile(uintptr(pair[1]), "b")
	defer socket.Close()
	defer other.Close()
	dir, err := os.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer dir.Close()
	closed, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	closed.Close()
	for name, tt := range map[string]struct {
		c     Command
		field string
	}{
		"stderr is a pipe":          {Command{Args: []string{"x"}, Stderr: write}, "Stderr"},
		"stderr is a socket":        {Command{Args: []string{"x"}, Stderr: socket}, "Stderr"},
		"stderr is a directory":     {Command{Args: []string{"x"}, Stderr: dir}, "Stderr"},
		"stderr is closed":          {Command{Args: []string{"x"}, Stderr: closed}, "Stderr"},
		"no program":                {Command{}, "Args"},
		"an empty program":          {Command{Args: []string{""}}, "Args"},
		"NUL in an argument":        {Command{Args: []string{"x", "a\x00b"}}, "Args"},
		"NUL in the environment":    {Command{Args: []string{"x"}, Env: []string{"A=\x00"}}, "Env"},
		"no name in environment":    {Command{Args: []string{"x"}, Env: []string{"A"}}, "Env"},
		"a relative directory":      {Command{Args: []string{"x"}, Dir: "a"}, "Dir"},
		"a nil file":                {Command{Args: []string{"x"}, Files: []*os.File{nil}}, "Files"},
		"a relative bind":           {Command{Args: []string{"x"}, Sandbox: &Sandbox{Binds: []Bind{{Host: "a"}}}}, "Sandbox"},
		"a relative repository":     {*GitUploadPack("repo.git"), "Sandbox"},
		"a repository that is gone": {*GitReceivePack("/no/such/repo.git"), "Sandbox"},
	} {
		t.Run(name, func(t *testing.T) {
			h, err := New(&tt.c, Config{})
			var ce *CommandError
			if !errors.As(err, &ce) || ce.Field != tt.field {
				t.Errorf("%v, %v; want a problem of %s", h, err, tt.field)
			}
		})
	}
	if c := (&Command{Args: []string{"x"}, Stderr: os.Stderr}); c.Validate() != nil {
		t.Errorf("this process's own standard error: %v", c.Validate())
	}
}

// Promise 206: an exec.Cmd that was prepared elsewhere is taken over.
func TestFromCmd(t *testing.T) {
	testutil.EachUser(t, func(t *testing.T) {
		t.Setenv("FROM_HOST", "yes")
		cmd := exec.Command("sh", "-c", "echo $FROM_HOST; pwd; cat <&3; echo pid $$")
		cmd.Dir = t.TempDir()
		file, err := os.CreateTemp(cmd.Dir, "")
		if err != nil {
			t.Fatal(err)
		}
		defer file.Close()
		file.WriteString("extra\n")
		file.Seek(0, 0)
		cmd.ExtraFiles = []*os.File{file}
		cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
		c, err := FromCmd(cmd)
		if err != nil {
			t.Fatal(err)
		}
		conn := dial(t, serving(t, c, Config{}))
		conn.CloseWrite()
		expectEnd(t, conn, "yes\n"+cmd.Dir+"\nextra\npid 2\n")
	})
}

func TestFromCmdAsAnotherUser(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can become another user")
	}
	cmd := exec.Command("id", "-u")
	cmd.Dir = "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: testutil.Nobody, Gid: testutil.Nobody}}
	c, err := FromCmd(cmd)
	if err != nil {
		t.Fatal(err)
	}
	conn := dial(t, serving(t, c, Config{}))
	conn.CloseWrite()
	expectEnd(t, conn, fmt.Sprintf("%d\n", testutil.Nobody))
}

func TestFromCmdRefuses(t *testing.T) {
	for name, make := range map[string]func() *exec.Cmd{
		"Args":   func() *exec.Cmd { return exec.Command("no-such-program") },
		"Stdin":  func() *exec.Cmd { c := exec.Command("cat"); c.Stdin = strings.NewReader(""); return c },
		"Stderr": func() *exec.Cmd { c := exec.Command("cat"); c.Stderr = new(bytes.Buffer); return c },
		"Cancel": func() *exec.Cmd { return exec.CommandContext(t.Context(), "cat") },
		"SysProcAttr": func() *exec.Cmd {
			c := exec.Command("cat")
			c.SysProcAttr = &syscall.SysProcAttr{Chroot: "/"}
			return c
		},
	} {
		c, err := FromCmd(make())
		var ce *CommandError
		if !errors.As(err, &ce) || ce.Field != name {
			t.Errorf("%v, %v; want a problem of %s", c, err, name)
		}
	}
	running := exec.Command("cat")
	in, err := running.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := running.Start(); err != nil {
		t.Fatal(err)
	}
	if c, err := FromCmd(running); err == nil {
		t.Errorf("a running command whose streams are not the connection: %v", c)
	}
	in.Close()
	running.Wait()
	if c, err := FromCmd(running); err == nil {
		t.Errorf("a command that has ended: %v", c)
	}
}

// Promise 206: a command that the handler has started.
func TestAdoption(t *testing.T) {
	for name, tt := range map[string]struct {
		script string
		attr   *syscall.SysProcAttr
		check  func(t *testing.T, h *Hatch)
	}{
		"ends": {"cat", nil, func(t *testing.T, h *Hatch) {
			c := dial(t, h)
			send(t, c, "hello")
			c.CloseWrite()
			expectEnd(t, c, "hello")
		}},
		"is ended": {"echo up; exec sleep 7777", nil, func(t *testing.T, h *Hatch) {
			c := dial(t, h)
			expect(t, c, "up\n")
			h.Close()
			over(c)
		}},
		"dies with input unread": {"echo up; sleep 7777 & head -c 1 >/dev/null; kill -9 $$", &syscall.SysProcAttr{Setpgid: true}, func(t *testing.T, h *Hatch) {
			c := dial(t, h)
			expect(t, c, "up\n")
			send(t, c, "request")
			if err := over(c); !isReset(err) {
				t.Errorf("the stream ended with %v", err)
			}
		}},
		"leaves a child in its group": {"sleep 7777 & echo $!", &syscall.SysProcAttr{Setpgid: true}, func(t *testing.T, h *Hatch) {
			c := dial(t, h)
			var pid int
			if _, err := fmt.Fscan(c, &pid); err != nil {
				t.Fatal(err)
			}
			over(c)
			hatchtest.Eventually(t, "the child is gone", func() bool { return unix.Kill(pid, 0) == unix.ESRCH })
		}},
		"leaves a daemon with the socket": {"setsid sleep 7777 & echo $!", &syscall.SysProcAttr{Setpgid: true}, func(t *testing.T, h *Hatch) {
			c := dial(t, h)
			var pid int
			if _, err := fmt.Fscan(c, &pid); err != nil {
				t.Fatal(err)
			}
			if err := over(c); err != nil { // the connection ends, though the daemon lives
				t.Error(err)
			}
			unix.Kill(pid, unix.SIGKILL)
		}},
	} {
		t.Run(name, func(t *testing.T) {
			h := serving(t, HandlerFunc(func(ctx context.Context, s *Stream) (*Command, error) {
				socket, err := s.File()
				if err != nil {
					return nil, err
				}
				defer socket.Close()
				cmd := exec.Command("sh", "-c", tt.script)
				cmd.Stdin, cmd.Stdout, cmd.SysProcAttr = socket, socket, tt.attr
				if err := cmd.Start(); err != nil {
					return nil, err
				}
				return FromCmd(cmd)
			}), Config{})
			tt.check(t, h)
		})
	}
}

// A command that runs for one connection is none for another.
func TestAdoptionForAnotherConnection(t *testing.T) {
	var log hatchtest.Log
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	ours, theirs := os.NewFile(uintptr(pair[0]), "a"), os.NewFile(uintptr(pair[1]), "b")
	defer ours.Close()
	cmd := exec.Command("cat")
	cmd.Stdin, cmd.Stdout = theirs, theirs
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	c, err := FromCmd(cmd)
	theirs.Close()
	if err != nil {
		t.Fatal(err)
	}
	over(dial(t, serving(t, c, Config{Logger: log.Logger(slog.LevelWarn)})))
	expectEnd(t, ours, "") // it was killed
	if n := len(entries(t, &log, slog.LevelWarn, "a command could not be started")); n != 1 {
		t.Errorf("%d warnings", n)
	}
}

// A command in a sandbox has only what it was given.
func TestCommandInASandbox(t *testing.T) {
	testutil.EachUser(t, func(t *testing.T) {
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, "data"), []byte("data\n"), 0o644); err != nil {
			t.Fatal(err)
		}
		const script = `cat /given/data; (echo x > /given/new) 2>/dev/null && echo written
ls -d /home /root /etc/passwd "$0" 2>/dev/null; grep -c : /proc/net/dev; grep CapEff /proc/self/status`
		run := func(sandbox *Sandbox) string {
			c := Exec("sh", "-c", script, dir)
			c.Sandbox = sandbox
			conn := dial(t, serving(t, c, Config{}))
			conn.CloseWrite()
			var out bytes.Buffer
			if _, err := out.ReadFrom(conn); err != nil {
				t.Fatal(err)
			}
			return out.String()
		}
		const caps = "CapEff:\t0000000000000000\n"
		if got, want := run(&Sandbox{Binds: []Bind{{Host: dir, Path: "/given"}}}), "data\n1\n"+caps; got != want {
			t.Errorf("read-only: %q, want %q", got, want)
		}
		if got, want := run(&Sandbox{Binds: []Bind{{Host: dir, Path: "/given", Writable: true}}}), "data\nwritten\n1\n"+caps; got != want {
			t.Errorf("writable: %q, want %q", got, want)
		}
		// The control: without a sandbox it sees the host.
		if got := run(nil); !strings.Contains(got, "/etc/passwd\n") || !strings.Contains(got, dir+"\n") {
			t.Errorf("without: %q", got)
		}
	})
}
