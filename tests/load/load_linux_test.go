// Package load runs many guests, and guests that ask for too much, and looks
// at what that costs the host and at what is left.
//
// POSTERN_LOAD=full makes 20,000 runs where the test otherwise makes a few
// hundred.
package load

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	postern "github.com/populationgenomics/postern-go"
	"github.com/populationgenomics/postern-go/internal/testutil"
)

func TestMain(m *testing.M) { os.Exit(testutil.Main(m)) }

const crowd = 200

func sandbox(t testing.TB, p postern.Profile) *postern.Sandbox {
	t.Helper()
	s, err := postern.New(p)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// unprivileged makes the guest's kernel user another than root, whom the limit
// on processes does not bind.
func unprivileged(p postern.Profile) postern.Profile {
	if os.Geteuid() == 0 {
		p.HostUID = new(uint32(testutil.Nobody))
	}
	return p
}

// together runs f so many times at once.
func together(n int, f func(i int)) {
	var all sync.WaitGroup
	for i := range n {
		all.Go(func() { f(i) })
	}
	all.Wait()
}

// meet is a guest that waits until all the others run, so that all of them do
// at once: each makes a file and then waits for one more. %[1]d is its number.
const meet = "touch /shared/%[1]d; while [ ! -e /shared/go ]; do sleep 0.05; done; echo out %[1]d; echo err %[1]d >&2; exit %[2]d"

func crowdRuns(t *testing.T, shared string, sandboxOf func(i int) *postern.Sandbox) {
	t.Helper()
	go func() {
		for {
			entries, err := os.ReadDir(shared)
			if err != nil || len(entries) >= crowd {
				os.WriteFile(shared+"/go", nil, 0o644)
				return
			}
			time.Sleep(10 * time.Millisecond) // polls for the event
		}
	}()
	begin := time.Now()
	together(crowd, func(i int) {
		r, err := sandboxOf(i).RunBash(context.Background(), fmt.Sprintf(meet, i, i%100))
		if err != nil || r.ExitCode != i%100 || string(r.Stdout) != fmt.Sprintln("out", i) || string(r.Stderr) != fmt.Sprintln("err", i) {
			t.Errorf("run %d: %d %q %q %v", i, r.ExitCode, r.Stdout, r.Stderr, err)
		}
	})
	t.Logf("%d runs at once took %v", crowd, time.Since(begin))
}

func sharedDir(t testing.TB) (string, postern.Profile) {
	t.Helper()
	dir := t.TempDir()
	if err := os.Chmod(dir, 0o777); err != nil {
		t.Fatal(err)
	}
	return dir, postern.Profile{WritableBinds: []postern.Bind{{Host: dir, Guest: "/shared"}}, Timeout: 5 * time.Minute}
}

func TestManyRunsInOneSandbox(t *testing.T) {
	testutil.NoLeak(t, func() {
		dir, p := sharedDir(t)
		s, err := postern.New(p)
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		crowdRuns(t, dir, func(int) *postern.Sandbox { return s })
	})
}

func TestManySandboxes(t *testing.T) {
	testutil.NoLeak(t, func() {
		dir, p := sharedDir(t)
		all := make([]*postern.Sandbox, crowd)
		for i := range all {
			s, err := postern.New(p)
			if err != nil {
				t.Fatal(err)
			}
			defer s.Close()
			all[i] = s
		}
		crowdRuns(t, dir, func(i int) *postern.Sandbox { return all[i] })
	})
}

// status returns a number from /proc/self/status, in bytes.
func status(t testing.TB, name string) int64 {
	t.Helper()
	b, err := os.ReadFile("/proc/self/status")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(b)) {
		if rest, ok := strings.CutPrefix(line, name+":"); ok {
			var kib int64
			fmt.Sscan(rest, &kib)
			return kib << 10
		}
	}
	t.Fatalf("no %s", name)
	return 0
}

// resetPeak makes VmHWM start again from what is resident now.
func resetPeak(t testing.TB) {
	t.Helper()
	runtime.GC()
	if err := os.WriteFile("/proc/self/clear_refs", []byte("5"), 0); err != nil {
		t.Fatal(err)
	}
}

// A guest that prints without end costs what the limit says.
func TestOutputWithoutEnd(t *testing.T) {
	const limit = 8 << 20
	s := sandbox(t, postern.Profile{OutputLimit: limit})
	resetPeak(t)
	before := status(t, "VmRSS")
	for range 5 {
		r, err := s.RunBash(context.Background(), "yes & yes >&2")
		if err != nil || r.Reason != postern.OutputLimit || len(r.Stdout)+len(r.Stderr) != limit {
			t.Errorf("%v, %d bytes, %v", r.Reason, len(r.Stdout)+len(r.Stderr), err)
		}
		runtime.GC()
	}
	grown := status(t, "VmHWM") - before
	t.Logf("five runs into a limit of %d MiB: peak grew by %d MiB", limit>>20, grown>>20)
	if grown > 8*limit {
		t.Errorf("the host's memory grew by %d bytes", grown)
	}
}

// Live output is not kept.
func TestStreamingIsFlat(t *testing.T) {
	s := sandbox(t, postern.Profile{})
	resetPeak(t)
	before := status(t, "VmRSS")
	p, err := s.StartBash(context.Background(), "head -c 300000000 /dev/zero")
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	var n int64
	begin := time.Now()
	for _, b := range p.Output() {
		n += int64(len(b))
	}
	grown := status(t, "VmHWM") - before
	t.Logf("%d bytes in %v: peak grew by %d KiB", n, time.Since(begin), grown>>10)
	if n != 3e8 || grown > 64<<20 {
		t.Errorf("%d bytes, the host's memory grew by %d", n, grown)
	}
}

func TestForkBomb(t *testing.T) {
	s := sandbox(t, unprivileged(postern.Profile{Limits: postern.Limits{Processes: 200}, Timeout: 3 * time.Second}))
	r, err := s.RunBash(context.Background(), "bomb() { bomb | bomb & }; bomb; while :; do sleep 1000; done")
	if err != nil || r.Reason != postern.TimedOut || !bytes.Contains(r.Stderr, []byte("Resource temporarily unavailable")) {
		t.Errorf("%v %d %v %.300s", r.Reason, r.ExitCode, err, r.Stderr)
	}
	if r, err := s.Run(context.Background(), "true"); err != nil || !r.OK() {
		t.Errorf("the next run: %v %v", r, err)
	}
}

func TestMemoryBomb(t *testing.T) {
	s := sandbox(t, postern.Profile{Limits: postern.Limits{AddressSpace: 512 << 20}})
	r, err := s.RunPython(context.Background(), "x = []\nwhile True: x.append(bytearray(10 << 20))")
	if err != nil || r.ExitCode != 1 || !bytes.Contains(r.Stderr, []byte("MemoryError")) || r.PeakMemory > 512<<20 {
		t.Errorf("%v %d %v %.300s, peak %d", r.Reason, r.ExitCode, err, r.Stderr, r.PeakMemory)
	}
}

func TestFullWorkspace(t *testing.T) {
	s := sandbox(t, postern.Profile{WorkspaceSize: 4 << 20})
	for range 3 {
		r, err := s.RunBash(context.Background(), "cat /dev/zero > full; stat -c %s full")
		if err != nil || string(r.Stdout) != "4194304\n" || !bytes.Contains(r.Stderr, []byte("No space left")) {
			t.Errorf("%q %s %v", r.Stdout, r.Stderr, err)
		}
	}
}

// footprint is what must not grow with the number of runs.
type footprint struct {
	fds, goroutines, mounts, children int
	rss                               int64
}

func (f footprint) more(than footprint) bool {
	return f.fds > than.fds || f.goroutines > than.goroutines || f.mounts > than.mounts || f.children > than.children
}

func measure(t testing.TB) footprint {
	t.Helper()
	runtime.GC()
	count := func(dir string) int {
		entries, err := os.ReadDir(dir)
		if err != nil {
			t.Fatal(err)
		}
		return len(entries)
	}
	mountinfo, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		t.Fatal(err)
	}
	children := 0
	tasks, err := os.ReadDir("/proc/self/task")
	if err != nil {
		t.Fatal(err)
	}
	for _, task := range tasks {
		b, _ := os.ReadFile("/proc/self/task/" + task.Name() + "/children")
		children += len(strings.Fields(string(b)))
	}
	return footprint{count("/proc/self/fd"), runtime.NumGoroutine(), bytes.Count(mountinfo, []byte("\n")), children, status(t, "VmRSS")}
}

func TestManyRunsInSequence(t *testing.T) {
	n := 500
	if os.Getenv("POSTERN_LOAD") == "full" {
		n = 20_000
	}
	s := sandbox(t, postern.Profile{})
	one := func() {
		r, err := s.Run(context.Background(), "/usr/bin/true")
		if err != nil || !r.OK() {
			t.Fatalf("%+v %v", r, err)
		}
	}
	for range 100 {
		one()
	}
	before := measure(t)
	begin := time.Now()
	for range n {
		one()
	}
	took := time.Since(begin)
	after := measure(t)
	for deadline := time.Now().Add(10 * time.Second); after.more(before) && time.Now().Before(deadline); {
		time.Sleep(time.Millisecond) // what the last launch leaves is about to end
		after = measure(t)
	}
	t.Logf("%d runs took %v, %v each; before %+v, after %+v", n, took, took/time.Duration(n), before, after)
	if after.more(before) {
		t.Errorf("something is left: before %+v, after %+v", before, after)
	}
	if grown := after.rss - before.rss; grown > 16<<20 {
		t.Errorf("the host's memory grew by %d bytes", grown)
	}
}
