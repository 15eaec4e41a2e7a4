//go:build linux

package nsexec_test

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/populationgenomics/postern-go/internal/testutil"
	"github.com/populationgenomics/postern-go/internal/testutil/guest"
	"github.com/populationgenomics/postern-go/nsexec"
	"golang.org/x/sys/unix"
)

var holderProbe = guest.Probe("holder", func([]string) {
	runtime.LockOSThread()
	pid, dismiss := nsexec.StartHolder()
	fmt.Println(pid)
	var stay string
	if fmt.Scanln(&stay); stay == "dismiss" {
		dismiss()
		fmt.Println(unix.Kill(pid, 0))
		return
	}
	fmt.Println(syscall.Exec("/bin/sh", []string{"sh", "-c", "echo another; read x"}, nil))
})

// A holder has the memory of its process and no part in its signals, and ends
// with that memory's time: when the process becomes another program, is killed,
// or thinks better of it.
func TestHolder(t *testing.T) {
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	testutil.EachUser(t, func(t *testing.T) {
		for _, end := range []string{"exec", "kill", "dismiss"} {
			t.Run(end, func(t *testing.T) {
				cmd := exec.Command(exe)
				cmd.Env = append(os.Environ(), guest.ProbeEnv(holderProbe))
				inR, in := testutil.Pipe(t)
				outR, outW := testutil.Pipe(t)
				cmd.Stdin, cmd.Stdout, cmd.Stderr = inR, outW, os.Stderr
				if err := cmd.Start(); err != nil {
					t.Fatal(err)
				}
				inR.Close()
				outW.Close()
				t.Cleanup(func() {
					cmd.Process.Kill()
					cmd.Wait()
				})
				out := bufio.NewReader(outR)
				line, _ := out.ReadString('\n')
				pid, err := strconv.Atoi(strings.TrimSpace(line))
				if err != nil || pid == 0 {
					t.Fatalf("no holder: %q", line)
				}
				pidfd, err := unix.PidfdOpen(pid, 0)
				if err != nil {
					t.Fatal(err)
				}
				defer unix.Close(pidfd)
				proc := filepath.Join("/proc", strconv.Itoa(pid))
				if got := procStatus(t, proc, "SigBlk"); got != "fffffffffffbfeff" {
					t.Errorf("the holder blocks signals %s", got)
				}
				if got, want := procStatus(t, proc, "VmSize"), procStatus(t, filepath.Join("/proc", strconv.Itoa(cmd.Process.Pid)), "VmSize"); got != want {
					t.Errorf("the holder has %s of memory, and its process %s", got, want)
				}
				fmt.Fprintln(in, end)
				switch end {
				case "exec":
					if l, _ := out.ReadString('\n'); l != "another\n" {
						t.Fatalf("after exec: %q", l)
					}
				case "kill":
					cmd.Process.Kill()
				case "dismiss":
					if l, _ := out.ReadString('\n'); l != "no such process\n" {
						t.Errorf("a holder that was dismissed: %q", l)
					}
				}
				for {
					if _, err := unix.Poll([]unix.PollFd{{Fd: int32(pidfd), Events: unix.POLLIN}}, -1); err != unix.EINTR {
						break
					}
				}
			})
		}
	})
}

// procStatus is a line of a process's status file.
func procStatus(t testing.TB, proc, name string) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(proc, "status"))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(b)) {
		if v, ok := strings.CutPrefix(line, name+":"); ok {
			return strings.TrimSpace(v)
		}
	}
	return ""
}

// A launch by Exec leaves nobody for others to reap, however soon it fails.
func TestExecLeavesNobody(t *testing.T) {
	testutil.EachUser(t, func(t *testing.T) {
		adopt(t)
		for name, want := range map[string]int{"missing bind": 125, "no hostname": 125, "init": 0, "no init": 0, "no PID namespace": 0, "bare": 0, "forward": 0, "die": 0, "die, no init": 0} {
			for range 10 {
				if out, code := runExec(t, name, "true"); code != want {
					t.Fatalf("%s: exit status %d: %s", name, code, out)
				}
				if pid, err := unix.Wait4(-1, nil, unix.WALL, nil); err != unix.ECHILD {
					t.Fatalf("%s: process %d was left behind (%v)", name, pid, err)
				}
			}
		}
	})
}
