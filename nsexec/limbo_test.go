//go:build linux

package nsexec_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/populationgenomics/postern-go/internal/testutil"
	"github.com/populationgenomics/postern-go/internal/testutil/guest"
	"golang.org/x/sys/unix"
)

// The monitor has the sockets, and on them lie one of them and the namespace.
func TestLimbo(t *testing.T) {
	ns, err := unix.PidfdOpen(os.Getpid(), 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(ns)
	want := 2
	if fd, err := unix.IoctlRetInt(ns, 0xff03); err != nil {
		t.Logf("this kernel gives no namespaces for pidfds: %v", err)
		want = 0
	} else {
		unix.Close(fd)
	}
	if os.Getuid() != 0 {
		testutil.Missing(t, "root, as nobody else may look into a monitor")
	}
	for _, name := range []string{"init", "no init", "forward", "die"} {
		for _, user := range []string{"root", "nobody"} {
			cmd := execCmd(t, name, "echo up; read x")
			if user == "nobody" {
				cmd = testutil.SelfAsNobody(t, name, "echo up; read x")
				cmd.Env = append(cmd.Environ(), guest.ProbeEnv(execProbe))
			}
			in, _ := startUp(t, cmd)
			sent := 0
			files, err := filepath.Glob(fmt.Sprintf("/proc/%d/fdinfo/*", cmd.Process.Pid))
			if err != nil || len(files) == 0 {
				t.Fatalf("the monitor's descriptors: %v %v", files, err)
			}
			for _, f := range files {
				b, _ := os.ReadFile(f)
				for line := range strings.Lines(string(b)) {
					var n int
					fmt.Sscanf(line, "scm_fds: %d", &n)
					sent += n
				}
			}
			if sent != want {
				t.Errorf("%s as %s: %d descriptors lie on the monitor's sockets, want %d", name, user, sent, want)
			}
			in.Close()
			cmd.Wait()
		}
	}
}

// alone is a process with a mount namespace of its own, in which it may mount.
var aloneProbe = guest.Probe("alone", func([]string) {
	check := func(what string, err error) {
		if err != nil {
			fmt.Println(what, err)
			os.Exit(1)
		}
	}
	dir := os.Getenv("DIR")
	check("make private", unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""))
	check("mount", unix.Mount("tmpfs", dir, "tmpfs", 0, ""))
	check("make a file", os.WriteFile(dir+"/lock", nil, 0o600))
	watch, err := unix.InotifyInit1(unix.IN_CLOEXEC)
	check("watch", err)
	_, err = unix.InotifyAddWatch(watch, dir+"/lock", unix.IN_DELETE_SELF)
	check("watch", err)

	exe, err := os.Executable()
	check("find myself", err)
	cmd := exec.Command(exe, "locks", "exit 7")
	cmd.Env = append(os.Environ(), guest.ProbeEnv(execProbe))
	out, _ := cmd.CombinedOutput()
	fmt.Printf("exit %d %s\n", cmd.ProcessState.ExitCode(), out)

	check("unmount", unix.Unmount(dir, 0))
	var event [64]byte
	_, err = unix.Read(watch, event[:]) // the file is gone with the last mount
	check("wait for the end of the file system", err)
	fmt.Println("gone")
})

// What the kernel is left with it takes down: a file system that was bound is
// gone with the guest.
func TestLimboEnds(t *testing.T) {
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	testutil.EachUser(t, func(t *testing.T) {
		cmd := exec.Command(exe)
		cmd.Env = append(os.Environ(), guest.ProbeEnv(aloneProbe), "DIR="+t.TempDir())
		cmd.SysProcAttr = &syscall.SysProcAttr{
			Cloneflags:  syscall.CLONE_NEWUSER | syscall.CLONE_NEWNS,
			UidMappings: []syscall.SysProcIDMap{{HostID: os.Getuid(), Size: 1}},
			GidMappings: []syscall.SysProcIDMap{{HostID: os.Getgid(), Size: 1}},
		}
		out, err := cmd.CombinedOutput()
		if want := "exit 7 \ngone\n"; err != nil || string(out) != want {
			t.Fatalf("%v: %q, want %q", err, out, want)
		}
	})
}
