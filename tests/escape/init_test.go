//go:build linux

package escape

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"testing"

	"github.com/populationgenomics/postern-go/internal/testutil"
	"github.com/populationgenomics/postern-go/internal/testutil/guest"
	"github.com/populationgenomics/postern-go/nsexec"
	"golang.org/x/sys/unix"
)

// What a guest can do to a process that is not to be touched: the init. The
// files of the guest's own process are the control: the same code works there.
var ofProcess = map[string]func(dir string) error{
	"environ":    readable("environ"),
	"auxv":       readable("auxv"),
	"maps":       readable("maps"),
	"smaps":      readable("smaps"),
	"mem":        func(dir string) error { return openTo(dir+"/mem", unix.O_RDONLY) },
	"mem, write": func(dir string) error { return openTo(dir+"/mem", unix.O_RDWR) },
	"root":       func(dir string) error { return openTo(dir+"/root", unix.O_PATH) },
	"cwd":        func(dir string) error { return openTo(dir+"/cwd", unix.O_PATH) },
	"fd/0":       func(dir string) error { return openTo(dir+"/fd/0", unix.O_PATH) },
	"fd/0, link": linkOf("fd/0"),
	"exe, link":  linkOf("exe"),
	"ns/net":     func(dir string) error { return openTo(dir+"/ns/net", unix.O_RDONLY) },
	"exe":        func(dir string) error { return openTo(dir+"/exe", unix.O_PATH) },
}

func readable(name string) func(string) error {
	return func(dir string) error {
		b, err := os.ReadFile(dir + "/" + name)
		if err == nil && len(b) == 0 {
			return unix.ENODATA
		}
		return err
	}
}

func linkOf(name string) func(string) error {
	return func(dir string) error { _, err := os.Readlink(dir + "/" + name); return err }
}

var ofProcessProbe = guest.Probe("of a process", func(args []string) {
	for name, do := range ofProcess {
		fmt.Printf("%s: %s\n", name, outcome(do(args[0])))
	}
})

// The init is closed to the guest, though they are the same user.
func TestInitIsClosed(t *testing.T) {
	testutil.EachUser(t, func(t *testing.T) {
		p := wall(t)
		for _, off := range [][]layer{nil, {seccomp}} {
			got := lines(inGuest(t, p, ofProcessProbe, []string{"/proc/1"}, off...))
			if len(got) != len(ofProcess) {
				t.Errorf("the guest says %q", got)
			}
			for _, l := range got {
				if !strings.HasSuffix(l, ": EACCES") && !strings.HasSuffix(l, ": EPERM") && !strings.HasSuffix(l, ": ENOENT") {
					t.Errorf("/proc/1/%s", l)
				}
			}
		}
		for _, l := range lines(inGuest(t, p, ofProcessProbe, []string{"/proc/self"})) {
			if !strings.HasSuffix(l, ": "+through) {
				t.Errorf("/proc/self/%s; this attack proves nothing", l)
			}
		}
	})
}

// overwrite is the attack of CVE-2019-5736 on a program that runs: open it
// without rights and write to it as soon as that is possible.
var overwrite = guest.Probe("overwrite", func(args []string) {
	var said []string
	for _, exe := range args {
		said = append(said, outcome(func() error {
			fd, err := unix.Open(exe, unix.O_PATH|unix.O_CLOEXEC, 0)
			if err != nil {
				return err
			}
			defer unix.Close(fd)
			for range 1000 {
				w, werr := unix.Open(fmt.Sprintf("/proc/self/fd/%d", fd), unix.O_WRONLY|unix.O_CLOEXEC, 0)
				if werr == nil {
					unix.Close(w)
					return nil
				}
				err = werr
			}
			return err
		}()))
	}
	fmt.Println(strings.Join(said, " "))
})

// A guest can overwrite neither the init nor the program it was started from,
// and the init is none of the host's files anyway.
func TestOverwriteTheLauncher(t *testing.T) {
	testutil.EachUser(t, func(t *testing.T) {
		before := ownHash(t)
		p := wall(t)
		if got := inGuest(t, p, overwrite, []string{"/proc/1/exe", "/proc/self/exe"}); got != "EACCES EROFS" && got != "EACCES EACCES" && got != "EACCES ETXTBSY" {
			t.Errorf("overwriting the init and the program: %s", got)
		}
		// argv[0] of a script that makes the kernel execute the init again.
		s, err := p.Spec([]string{"/workspace/again"})
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(p.Workspace+"/again", []byte("#!/proc/1/exe\n"), 0o755); err != nil {
			t.Fatal(err)
		}
		if r := guest.Run(t, s); r.ExitCode != 126 {
			t.Errorf("a script for the init as interpreter ended with %d: %s", r.ExitCode, r.Out)
		}
		// The control: a program nobody executes, in a place nobody protects.
		mine := t.TempDir() + "/program"
		if err := os.WriteFile(mine, nil, 0o755); err != nil {
			t.Fatal(err)
		}
		if got := onHost(t, overwrite, mine); got != through {
			t.Errorf("overwriting a file of one's own: %s; this attack proves nothing", got)
		}
		if ownHash(t) != before {
			t.Error("the host's program has changed")
		}
	})
}

func ownHash(t *testing.T) [sha256.Size]byte {
	t.Helper()
	b, err := os.ReadFile("/proc/self/exe")
	if err != nil {
		t.Fatal(err)
	}
	return sha256.Sum256(b)
}

// The init's image is a sealed anonymous file: even the host cannot change it.
func TestImageIsSealed(t *testing.T) {
	testutil.EachUser(t, func(t *testing.T) {
		p := startWaiting(t)
		exe := fmt.Sprintf("/proc/%d/exe", p.PID())
		// The init cannot be looked at by its own user either, only by root.
		link, err := os.Readlink(exe)
		if !isRoot() {
			if err == nil {
				t.Errorf("an unprivileged host sees that the init is %s: it is dumpable", link)
			}
			return
		}
		if err != nil || !strings.HasPrefix(link, "/memfd:postern-stage") {
			t.Fatalf("the init is %s, %v", link, err)
		}
		fd, err := unix.Open(exe, unix.O_RDONLY|unix.O_CLOEXEC, 0)
		if err != nil {
			t.Fatal(err)
		}
		defer unix.Close(fd)
		const want = unix.F_SEAL_WRITE | unix.F_SEAL_SHRINK | unix.F_SEAL_GROW | unix.F_SEAL_SEAL
		if seals, err := unix.FcntlInt(uintptr(fd), unix.F_GET_SEALS, 0); err != nil || seals&want != want {
			t.Errorf("the init's image has seals %#x, %v; want %#x", seals, err, want)
		}
	})
}

// waitProbe says that it runs and waits for the end of its input.
var waitProbe = guest.Probe("wait", func([]string) {
	fmt.Println("ready")
	bufio.NewReader(os.Stdin).ReadByte()
})

// startWaiting starts a guest that does nothing.
func startWaiting(t *testing.T) *nsexec.Process {
	t.Helper()
	s := spec(t, wall(t), waitProbe)
	in, hold, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	out, said, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	s.Stdin, s.Stdout = in, said
	p, err := nsexec.Start(s)
	in.Close()
	said.Close()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		hold.Close()
		out.Close()
		<-p.Done()
	})
	if line, err := bufio.NewReader(out).ReadString('\n'); line != "ready\n" {
		t.Fatalf("the guest says %q, %v", line, err)
	}
	return p
}

const secretEnv = "POSTERN_ESCAPE_SECRET"

// secretHost is a host with a secret in its environment and on its heap. It
// starts a guest and prints its init's PID.
var secretHost = guest.Probe("secret host", func([]string) {
	heap := bytes.Repeat([]byte(os.Getenv(secretEnv)+"\n"), 1000)
	s, err := profileHere().Spec([]string{"cat"})
	if err == nil {
		s.Stdin, s.Stdout = os.Stdin, os.Stdout
		var p *nsexec.Process
		if p, err = nsexec.Start(s); err == nil {
			fmt.Println(p.PID(), os.Getpid())
			<-p.Done()
		}
	}
	runtime.KeepAlive(heap)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
})

// Nothing of the host's memory is in the init or the guest's program. Only root
// can look there; what it sees is the same for every user.
func TestInitHasNoSecrets(t *testing.T) {
	testutil.EachUser(t, func(t *testing.T) {
		const canary = "pOsTeRn-CaNaRy-0123456789"
		cmd := hostCommand(secretHost)
		cmd.Env = append(cmd.Env, secretEnv+"="+canary)
		hold, err := cmd.StdinPipe()
		if err != nil {
			t.Fatal(err)
		}
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		defer cmd.Wait()
		defer hold.Close()
		in := bufio.NewReader(out)
		var init, host int
		if _, err := fmt.Fscanln(in, &init, &host); err != nil {
			t.Fatal(err)
		}
		fmt.Fprintln(hold, "echo")
		if line, err := in.ReadString('\n'); line != "echo\n" { // cat runs
			t.Fatalf("the guest says %q, %v", line, err)
		}
		command := onlyChild(t, init)
		if environ, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", command)); err != nil || bytes.Contains(environ, []byte(canary)) {
			t.Errorf("the guest's environment: %q, %v", environ, err)
		}
		if !isRoot() { // and the init cannot be read by its own user
			if err := openTo(fmt.Sprintf("/proc/%d/mem", init), unix.O_RDONLY); err == nil {
				t.Error("the init's memory can be opened by the user it has")
			}
			return
		}
		for pid, want := range map[int]bool{init: false, command: false, host: true} {
			if got := inMemory(t, pid, canary); got != want {
				t.Errorf("secret in the memory of %d (init %d, command %d, host %d): %v", pid, init, command, host, got)
			}
		}
	})
}

func onlyChild(t *testing.T, pid int) int {
	t.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", pid, pid))
	if err != nil {
		t.Fatal(err)
	}
	child, err := strconv.Atoi(strings.TrimSpace(string(b)))
	if err != nil {
		t.Fatal(err)
	}
	return child
}

// inMemory reports whether a process has a text anywhere in its memory.
func inMemory(t *testing.T, pid int, text string) bool {
	t.Helper()
	maps, err := os.ReadFile(fmt.Sprintf("/proc/%d/maps", pid))
	if err != nil {
		t.Fatal(err)
	}
	mem, err := os.Open(fmt.Sprintf("/proc/%d/mem", pid))
	if err != nil {
		t.Fatal(err)
	}
	defer mem.Close()
	read := 0
	for line := range strings.Lines(string(maps)) {
		var from, to int64
		var perms string
		if _, err := fmt.Sscanf(line, "%x-%x %s", &from, &to, &perms); err != nil || perms[0] != 'r' || strings.Contains(line, "[v") {
			continue
		}
		buf := make([]byte, 1<<20)
		for at := from; at < to; at += int64(len(buf)) {
			n, _ := mem.ReadAt(buf[:min(int64(len(buf)), to-at)], at)
			read += n
			if bytes.Contains(buf[:n], []byte(text)) {
				return true
			}
		}
	}
	if read == 0 {
		t.Fatalf("nothing of the memory of %d could be read", pid)
	}
	return false
}

// A guest sees its own processes only.
func TestOtherProcesses(t *testing.T) {
	testutil.EachUser(t, func(t *testing.T) {
		s, err := wall(t).Spec([]string{"sh", "-c", `echo /proc/[0-9]*; cat /proc/1/comm; kill -0 -1 && echo others || echo none; kill -KILL 1; kill -STOP 1; echo alive`})
		if err != nil {
			t.Fatal(err)
		}
		want := "/proc/1 /proc/2"
		got := lines(ended(guest.Run(t, s)))
		if len(got) == 0 || got[0] != want {
			t.Errorf("the guest sees %q, want %q", got, want)
		}
		if len(got) < 2 || got[1] != "postern-init" || got[len(got)-1] != "alive" {
			t.Errorf("the guest says %q", got)
		}
		out, err := exec.Command("sh", "-c", "echo /proc/[0-9]*").Output()
		if err != nil || strings.TrimSpace(string(out)) == want {
			t.Errorf("the host sees %q, %v; this attack proves nothing", out, err)
		}
	})
}
