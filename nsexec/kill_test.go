//go:build linux

package nsexec_test

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/populationgenomics/postern-go/internal/testutil"
	"github.com/populationgenomics/postern-go/internal/testutil/guest"
	"github.com/populationgenomics/postern-go/nsexec"
	"golang.org/x/sys/unix"
)

// adopt makes orphaned descendants this process's children for the time of a
// test, so that none gets lost.
func adopt(t *testing.T) {
	t.Helper()
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0) })
}

// allEnd waits until every descendant of this process has ended. One that
// lives on is named by the panic of its deadline.
func allEnd(t *testing.T, what string) {
	t.Helper()
	late := time.AfterFunc(30*time.Second, func() {
		var left []string
		tasks, _ := filepath.Glob("/proc/self/task/*/children")
		for _, f := range tasks {
			b, _ := os.ReadFile(f)
			for pid := range strings.FieldsSeq(string(b)) {
				cmd, _ := os.ReadFile("/proc/" + pid + "/cmdline")
				stat, _ := os.ReadFile("/proc/" + pid + "/stat")
				wchan, _ := os.ReadFile("/proc/" + pid + "/wchan")
				left = append(left, fmt.Sprintf("%s %q %.20s %s", pid, cmd, stat, wchan))
			}
		}
		panic(what + ": still there: " + strings.Join(left, "; "))
	})
	defer late.Stop()
	for {
		if _, err := unix.Wait4(-1, nil, 0, nil); err == unix.ECHILD {
			return
		}
	}
}

// A host that launches all the time, many at once.
var busyProbe = guest.Probe("busy host", func([]string) {
	for range 3 {
		go func() {
			for {
				if _, err := guest.Try(guest.Shell("setsid sleep 1000 & exec sleep 0.002")); err != nil {
					fmt.Println(err)
				}
			}
		}()
	}
	for {
		// Guests that would live on, launched over and over.
		p, err := nsexec.Start(guest.Shell("trap '' TERM HUP INT; setsid sleep 1000 & sleep 1000"))
		if err != nil {
			fmt.Println(err)
			continue
		}
		fmt.Println("up")
		p.Signal(unix.SIGKILL)
		p.Wait(context.Background())
	}
})

// Whenever a host is killed, nothing of its launches and guests lives on.
func TestHostKilledAtAnyMoment(t *testing.T) {
	testutil.EachUser(t, func(t *testing.T) {
		adopt(t)
		exe, err := os.Executable()
		if err != nil {
			t.Fatal(err)
		}
		for i := range 60 {
			cmd := exec.Command(exe)
			cmd.Env = append(os.Environ(), guest.ProbeEnv(busyProbe))
			out, w, err := os.Pipe()
			if err != nil {
				t.Fatal(err)
			}
			cmd.Stdout = w
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			w.Close()
			if _, err := out.Read(make([]byte, 1)); err != nil { // it is in full swing
				t.Fatal(err)
			}
			spin(rand.IntN(20000))
			cmd.Process.Kill()
			allEnd(t, fmt.Sprintf("round %d", i))
			b, _ := io.ReadAll(out) // end of file: nobody holds it
			if s := strings.ReplaceAll(string(b), "up\n", ""); strings.Contains(s, "failed") {
				t.Errorf("%q", s)
			}
			out.Close()
			cmd.Wait()
		}
	})
}

// spin passes some time, a different amount each time, in steps of a system
// call.
func spin(steps int) {
	for range steps {
		unix.Getppid()
	}
}

// With DieWithParent a launcher's guest ends with the monitor and with the
// monitor's parent, whenever that is.
func TestDieWithParent(t *testing.T) {
	testutil.EachUser(t, func(t *testing.T) {
		adopt(t)
		exe, err := os.Executable()
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range []string{"die", "die, no init"} {
			for i := range 50 {
				for _, victim := range []string{"monitor", "parent"} {
					// A parent that starts the launcher and says its PID.
					cmd := exec.Command(exe, name)
					cmd.Env = append(os.Environ(), guest.ProbeEnv(parentProbe))
					out, w, err := os.Pipe()
					if err != nil {
						t.Fatal(err)
					}
					cmd.Stdout = w
					if err := cmd.Start(); err != nil {
						t.Fatal(err)
					}
					w.Close()
					var monitor int
					if _, err := fmt.Fscanln(out, &monitor); err != nil {
						t.Fatal(err)
					}
					// The launcher knows its parent from here on: it could
					// not tell one that died before from any other process.
					if _, err := io.ReadFull(out, make([]byte, len(begun))); err != nil {
						t.Fatal(err)
					}
					spin(rand.IntN(30000))
					if victim == "monitor" {
						unix.Kill(monitor, unix.SIGKILL)
					} else {
						cmd.Process.Kill()
					}
					io.Copy(io.Discard, out) // end of file: the guest is gone too
					cmd.Process.Kill()
					allEnd(t, fmt.Sprintf("%s, %s killed, round %d", name, victim, i))
					out.Close()
					cmd.Wait()
				}
			}
		}
	})
}

var parentProbe = guest.Probe("parent", func(args []string) {
	exe, err := os.Executable()
	if err != nil {
		panic(err)
	}
	cmd := exec.Command(exe, args[0], "trap '' TERM; sleep 1000")
	cmd.Env = append(os.Environ(), guest.ProbeEnv(execProbe), "BEGUN=1")
	cmd.Stdout = os.Stdout
	hold, release, err := os.Pipe()
	if err != nil {
		panic(err)
	}
	cmd.Stdin = hold // keeps its message behind ours
	if err := cmd.Start(); err != nil {
		panic(err)
	}
	hold.Close()
	fmt.Println(cmd.Process.Pid)
	release.Close()
	os.Stdout.Close()
	cmd.Wait()
	select {}
})

// A launch that is killed from outside before its program runs is an error.
func TestLaunchKilled(t *testing.T) {
	testutil.EachUser(t, func(t *testing.T) {
		for range 30 {
			testutil.NoLeak(t, func() {
				done := make(chan struct{})
				killed := make(chan struct{})
				go func() {
					defer close(killed)
					for {
						select {
						case <-done:
							return
						default:
						}
						tasks, _ := filepath.Glob("/proc/self/task/*/children")
						for _, f := range tasks {
							b, _ := os.ReadFile(f)
							for pid := range strings.FieldsSeq(string(b)) {
								var n int
								fmt.Sscan(pid, &n)
								// Not before the host has been told of
								// it: it is the host's to reap.
								if comm, _ := os.ReadFile("/proc/" + pid + "/comm"); string(comm) != "postern-init\n" {
									continue
								}
								spin(rand.IntN(3000))
								unix.Kill(n, unix.SIGKILL)
							}
						}
					}
				}()
				p, err := nsexec.Start(guest.Spec([]string{"sleep", "1000"}))
				if err == nil {
					<-p.Done()
				}
				close(done)
				<-killed
			})
		}
	})
}
