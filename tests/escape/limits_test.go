//go:build linux

package escape

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/populationgenomics/postern-go"
	"github.com/populationgenomics/postern-go/internal/testutil"
	"github.com/populationgenomics/postern-go/internal/testutil/guest"
	"github.com/populationgenomics/postern-go/mounts"
	"github.com/populationgenomics/postern-go/nsexec"
	"golang.org/x/sys/unix"
)

// forkBomb starts processes that stay until it cannot or has enough.
var forkBomb = guest.Probe("fork bomb", func([]string) {
	const enough = 200
	for n := range enough {
		pid, err := syscall.ForkExec("/bin/sleep", []string{"sleep", "1000"}, &syscall.ProcAttr{Files: []uintptr{0}})
		if err != nil {
			fmt.Println("stopped", n < 64, outcome(err))
			return
		}
		_ = pid
	}
	fmt.Println("enough")
})

// A guest has so many processes and no more. The kernel does not hold root to
// that, which is why a host that is root gives its guest another user.
func TestForkBomb(t *testing.T) {
	testutil.EachUser(t, func(t *testing.T) {
		p := reachableWall(t)
		p.Limits.Processes = 64
		if got, want := inGuest(t, p, forkBomb, nil), "stopped true EAGAIN"; got != want {
			t.Errorf("with a limit of 64: %s, want %s", got, want)
		}
		p.Limits.Processes = postern.Unlimited
		if got := inGuest(t, p, forkBomb, nil); got != "enough" {
			t.Errorf("without a limit: %s; this attack proves nothing", got)
		}
	})
}

// reachableWall is the wall of a guest that is nobody in the kernel, with the
// test program where nobody can reach it.
func reachableWall(t *testing.T) postern.Profile {
	t.Helper()
	dir, err := os.MkdirTemp("/tmp", "postern-escape-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	if err := errors.Join(os.Chmod(dir, 0o755), exec.Command("cp", hostSelf(t), dir+"/probe").Run(), os.Chmod(dir+"/probe", 0o755)); err != nil {
		t.Fatal(err)
	}
	nobody := uint32(testutil.Nobody)
	return postern.Profile{HostUID: &nobody, RequiredBinds: []postern.Bind{{Host: dir + "/probe", Guest: guestSelf}}}
}

// fill writes to a directory until it cannot or has enough.
var fill = guest.Probe("fill", func(args []string) {
	f, err := os.Create(args[0] + "/fill")
	buf := make([]byte, 1<<16)
	n := 0
	for ; err == nil && n < 64; n++ {
		_, err = f.Write(buf)
	}
	fmt.Println(n*len(buf) > 1<<20+len(buf), outcome(err))
})

// fillFiles makes files in a directory until it cannot or has enough.
var fillFiles = guest.Probe("fill with files", func(args []string) {
	for n := range 6000 {
		if err := unix.Mkdir(fmt.Sprintf("%s/%d", args[0], n), 0o755); err != nil {
			fmt.Println("stopped", outcome(err))
			return
		}
	}
	fmt.Println("enough")
})

// Nothing in the guest's memory can be filled beyond its size, with bytes or
// with files.
func TestFillMemory(t *testing.T) {
	testutil.EachUser(t, func(t *testing.T) {
		p := wall(t)
		p.TmpSize, p.ShmSize, p.Workspace, p.WorkspaceSize = 1<<20, 1<<20, "", 1<<20
		unlimited := layer{"sizes", func(s *nsexec.Spec) {
			edit(s, func(o *mounts.Tmpfs) { o.Size, o.Inodes = 64<<20, 0 })
			edit(s, func(o *mounts.Dev) { o.Size, o.Inodes = 64<<20, 0 })
			s.Mounts.RootSize, s.Mounts.RootInodes = 64<<20, 0
		}}
		for _, dir := range []string{"/tmp", "/dev/shm", "/workspace", "/dev"} {
			if got, want := inGuest(t, p, fill, []string{dir}), "false ENOSPC"; got != want {
				t.Errorf("writing to %s: %s, want %s", dir, got, want)
			}
			if got := inGuest(t, p, fill, []string{dir}, unlimited); got != "true "+through {
				t.Errorf("writing to %s without its size: %s; this attack proves nothing", dir, got)
			}
		}
		for _, dir := range []string{"/tmp", "/dev/shm", "/workspace", "/dev", "/"} {
			if got, want := inGuest(t, p, fillFiles, []string{dir}), "stopped ENOSPC"; got != want {
				t.Errorf("making files in %s: %s, want %s", dir, got, want)
			}
		}
		if got := inGuest(t, p, fillFiles, []string{"/tmp"}, unlimited); got != "enough" {
			t.Errorf("making files in /tmp without a limit: %s; this attack proves nothing", got)
		}
	})
}

// allocate maps memory and uses it until it cannot or has enough.
var allocate = guest.Probe("allocate", func([]string) {
	for range 6 {
		b, err := unix.Mmap(-1, 0, 1<<30, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS|unix.MAP_NORESERVE)
		if err != nil {
			fmt.Println("stopped", outcome(err))
			return
		}
		b[0] = 1
	}
	fmt.Println("enough")
})

func TestAllocate(t *testing.T) {
	testutil.EachUser(t, func(t *testing.T) {
		p := wall(t)
		p.Limits.AddressSpace = 4 << 30
		if got, want := inGuest(t, p, allocate, nil), "stopped ENOMEM"; got != want {
			t.Errorf("with a limit of 4 GiB: %s, want %s", got, want)
		}
		p.Limits.AddressSpace = 0
		if got := inGuest(t, p, allocate, nil); got != "enough" {
			t.Errorf("without a limit: %s; this attack proves nothing", got)
		}
	})
}

// Limits cannot be raised from inside, nor can the priority.
var raise = guest.Probe("raise limits", func([]string) {
	for _, what := range []int{unix.RLIMIT_NPROC, unix.RLIMIT_AS, unix.RLIMIT_NOFILE, unix.RLIMIT_FSIZE} {
		var l unix.Rlimit
		if err := unix.Getrlimit(what, &l); err != nil {
			fmt.Println(err)
		}
		max := l.Max
		l.Max, l.Cur = max-1, max-1
		lower := outcome(unix.Prlimit(0, what, &l, nil)) // which shows that limits can be set at all
		l.Max = max
		fmt.Print(lower, ", ", outcome(unix.Prlimit(0, what, &l, nil)), "; ")
	}
	fmt.Print(outcome(os.WriteFile("/proc/self/oom_score_adj", []byte("-1000"), 0)), " ")
	fmt.Print(outcome(unix.Setpriority(unix.PRIO_PROCESS, 0, -5)))
})

func TestLimitsStay(t *testing.T) {
	testutil.EachUser(t, func(t *testing.T) {
		p := wall(t)
		p.Limits = postern.Limits{Processes: 100, AddressSpace: 8 << 30, OpenFiles: 100, FileSize: 1 << 30}
		if got, want := inGuest(t, p, raise, nil), strings.Repeat(through+", EPERM; ", 4)+"EACCES EACCES"; got != want {
			t.Errorf("raising: %s, want %s", got, want)
		}
		if isRoot() {
			if got := onHost(t, raise); !strings.HasSuffix(got, through) {
				t.Errorf("raising the priority on the host: %s; this proves nothing", got)
			}
		}
	})
}

// A guest that writes without end is killed, and its host keeps a bounded part.
func TestOutputFlood(t *testing.T) {
	testutil.EachUser(t, func(t *testing.T) {
		p := wall(t)
		p.OutputLimit = 1 << 20
		s, err := postern.New(p)
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		r, err := s.Run(t.Context(), "sh", "-c", "cat /dev/zero & cat /dev/zero >&2")
		if n := len(r.Stdout) + len(r.Stderr); err != nil || r.Reason != postern.OutputLimit || n != 1<<20 {
			t.Errorf("%v, %v, %d bytes; want %v and 1 MiB", err, r.Reason, n, postern.OutputLimit)
		}
	})
}

// mess leaves in the workspace whatever could hurt who looks at it.
var mess = guest.Probe("mess", func(args []string) {
	secret := args[0]
	err := errors.Join(
		os.WriteFile("ok", []byte("fine"), 0o644),
		os.Symlink(secret, "absolute"),
		os.Symlink("..", "up"),
		os.Symlink(filepath.Dir(secret), "dir"),
		os.Symlink("/", "root"),
		os.Symlink("/proc/self/environ", "environ"),
		os.Symlink("nowhere", "dangling"),
		os.Mkdir("sub", 0o755),
		os.Symlink("../../../../../../../.."+secret, "sub/relative"),
		unix.Mkfifo("fifo", 0o666),
		unix.Mknod("socket", unix.S_IFSOCK|0o666, 0),
	)
	last := "absolute"
	for i := range 9 {
		name := fmt.Sprint("chain", i)
		err = errors.Join(err, os.Symlink(last, name))
		last = name
	}
	fmt.Print(outcome(err))
})

// The host reads a workspace through its accessor and nothing a guest planted
// leads it out, or holds it up.
func TestMessInTheWorkspace(t *testing.T) {
	testutil.EachUser(t, func(t *testing.T) {
		const text = "the host's secret"
		secret := t.TempDir() + "/secret"
		if err := os.WriteFile(secret, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		p := wall(t)
		s, err := postern.New(p)
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		r, err := s.Run(t.Context(), probeArgs(mess, secret)...)
		if err != nil || string(r.Stdout) != through {
			t.Fatalf("%v: %s%s", err, r.Stdout, r.Stderr)
		}
		ws, err := s.Accessor()
		if err != nil {
			t.Fatal(err)
		}
		defer ws.Close()
		if b, err := ws.ReadFile("ok"); string(b) != "fine" {
			t.Errorf("an honest file: %q, %v", b, err)
		}
		for _, name := range []string{
			"absolute", "absolute/", "up/x", "up/", "dir/secret", "root" + secret, "root/", "environ", "dangling", "sub/relative",
			"fifo", "socket", "chain8", "sub/../absolute", "../x", secret, "", "/",
		} {
			if b, err := ws.ReadFile(name); err == nil || strings.Contains(err.Error(), text) || len(b) > 0 {
				t.Errorf("reading %q: %q, %v", name, b, err)
			}
		}
		for _, name := range []string{"absolute", "dangling", "dir/new", "up/new", "root/tmp/new", "fifo", "socket", "../new"} {
			if err := ws.WriteFile(name, []byte("x")); err == nil {
				// Replacing a link by a file is fine; following it is not.
				if b, _ := os.ReadFile(secret); string(b) != text {
					t.Errorf("writing %q changed a file outside", name)
				}
			}
		}
		if entries, err := os.ReadDir(filepath.Dir(secret)); err != nil || len(entries) != 1 {
			t.Errorf("outside there is %v, %v", entries, err)
		}
		// The control: plain reading follows.
		if b, err := os.ReadFile(p.Workspace + "/sub/relative"); string(b) != text {
			t.Errorf("plain reading gives %q, %v; this attack proves nothing", b, err)
		}
	})
}
