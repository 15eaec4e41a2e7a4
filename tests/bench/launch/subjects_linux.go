package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"text/tabwriter"
	"time"

	"github.com/populationgenomics/postern-go/nsexec"
	"github.com/populationgenomics/postern-go/seccompbpf"
	"golang.org/x/sys/unix"
)

const command = "/usr/bin/true"

type bench struct {
	tmp     string
	out     *tabwriter.Writer
	work    string
	filter  seccompbpf.Filter // what both sides install
	seccomp string            // the file with it
	ref     []string
	tmpl    *nsexec.Template
	null    *os.File
}

func (b *bench) prepare() error {
	b.work = filepath.Join(b.tmp, "work")
	if err := os.Mkdir(b.work, 0o777); err != nil {
		return err
	}
	b.filter = seccompbpf.BaselineFilter()
	b.seccomp = filepath.Join(b.tmp, "filter")
	if err := os.WriteFile(b.seccomp, b.filter.Bytes(), 0o644); err != nil {
		return err
	}
	b.ref = referenceArgs(b.work)
	var err error
	if b.tmpl, err = nsexec.NewTemplate(b.spec(command)); err != nil {
		return err
	}
	b.null, err = os.OpenFile(os.DevNull, os.O_RDWR, 0)
	return err
}

// spawn is fork and exec of a program, and the wait for it, with nothing of
// os/exec around it.
func (b *bench) spawn(argv []string, seccomp bool) error {
	files := []uintptr{b.null.Fd(), b.null.Fd(), b.null.Fd()}
	if seccomp {
		f, err := os.Open(b.seccomp)
		if err != nil {
			return err
		}
		defer f.Close()
		files = append(files, f.Fd())
	}
	pid, err := syscall.ForkExec(argv[0], argv, &syscall.ProcAttr{Files: files, Env: []string{"PATH=/usr/bin:/bin"}})
	if err != nil {
		return err
	}
	var ws syscall.WaitStatus
	for {
		if _, err = syscall.Wait4(pid, &ws, 0, nil); err != syscall.EINTR {
			break
		}
	}
	if err == nil && ws.ExitStatus() != 0 {
		err = fmt.Errorf("%s: exit status %d", argv[0], ws.ExitStatus())
	}
	return err
}

func (b *bench) bare() error { return b.spawn([]string{command}, false) }

func (b *bench) bwrapTrue() error {
	return b.spawn(append(append([]string{*bwrap}, b.ref...), command), true)
}

// ours is a launch of the library as a sandbox makes it of a plain command.
func (b *bench) ours() error {
	s := b.spec(command)
	return ended(b.tmpl.Start(nsexec.Command{Path: s.Path, Args: s.Args, Env: s.Env}))
}

// compiled is one that is compiled for the command.
func (b *bench) compiled() error { return ended(nsexec.Start(b.spec(command))) }

func ended(p *nsexec.Process, err error) error {
	if err != nil {
		return err
	}
	st, err := p.Wait(context.Background())
	if err == nil && st.ExitCode != 0 {
		err = fmt.Errorf("exit status %d", st.ExitCode)
	}
	return err
}

func (b *bench) library() error {
	m, err := interleave(*rounds, b.bare, b.bwrapTrue, b.ours, b.compiled)
	if err != nil {
		return err
	}
	b.row("fork and exec of true", m[0], m[0], "1", "")
	b.row("bwrap, profile", m[1], m[0], ratio(m[1], m[0]), "")
	b.row("library, profile", m[2], m[0], ratio(m[2], m[0]), "")
	b.row("overhead of the library over that of bwrap", m[2]-m[0], m[1]-m[0], ratio(m[2]-m[0], m[1]-m[0]), "<= 0.30, aim 0.20")
	b.row("the same, compiled for each launch", m[3]-m[0], m[1]-m[0], ratio(m[3]-m[0], m[1]-m[0]), "")
	return nil
}

// heap compares launches from this process with those from a child that holds
// a large heap.
func (b *bench) heap() error {
	small, err := interleave(*rounds, b.ours)
	if err != nil {
		return err
	}
	x := ballast()
	big, err := interleave(*rounds, b.ours)
	if err != nil {
		return err
	}
	again := small
	runtime.KeepAlive(x)
	x = nil
	runtime.GC()
	if again, err = interleave(*rounds, b.ours); err != nil {
		return err
	}
	none := (small[0] + again[0]) / 2
	b.row("library, 1 GB of heap in the host", big[0], none, ratio(big[0], none), "<= 1.10")
	return nil
}

// launcher compares postern-launch, which has a Go runtime to start, with
// bwrap: with the hardened profile, and with bwrap's own command line.
func (b *bench) launcher() error {
	hard := append([]string{*launcher, "--hardened", "--workspace", b.work, "--seccomp", "baseline", "--"}, command)
	m, err := interleave(*rounds, b.bwrapTrue, func() error { return b.spawn(hard, false) }, b.compatTrue)
	if err != nil {
		return err
	}
	b.row("postern-launch --hardened", m[1], m[0], ratio(m[1], m[0]), "<= 0.85, aim 0.75")
	b.row("postern-launch with bwrap's arguments", m[2], m[0], ratio(m[2], m[0]), "<= 0.85, aim 0.75")
	return nil
}

// compat is launcher without its first half.
func (b *bench) compat() error {
	m, err := interleave(*rounds, b.bwrapTrue, b.compatTrue)
	if err != nil {
		return err
	}
	b.row("postern-launch with bwrap's arguments", m[1], m[0], ratio(m[1], m[0]), "<= 0.85, aim 0.75")
	return nil
}

func (b *bench) compatTrue() error {
	return b.spawn(append(append([]string{*launcher}, b.ref...), command), true)
}

func (b *bench) binds() error {
	for _, n := range []int{500, 2000} {
		args := []string{"--ro-bind", "/", "/", "--tmpfs", "/tmp"}
		for i := range n {
			args = append(args, "--ro-bind", "/usr", fmt.Sprintf("/tmp/%d", i))
		}
		args = append(args, command)
		m, err := interleave(max(*rounds/20, 5),
			func() error { return b.spawn(append([]string{*launcher}, args...), false) },
			func() error { return b.spawn(append([]string{*bwrap}, args...), false) })
		if err != nil {
			return err
		}
		b.row(fmt.Sprintf("%d binds", n), m[0], m[1], ratio(m[0], m[1]), "<= 1")
	}
	return nil
}

func (b *bench) parallel() error {
	for _, n := range []int{1, 2, 4, 8} {
		each := max(*rounds/n, 10)
		many := func(s subject) subject {
			return func() error {
				var wg sync.WaitGroup
				errs := make(chan error, n)
				for range n {
					wg.Go(func() {
						for range each {
							if err := s(); err != nil {
								errs <- err
								return
							}
						}
					})
				}
				wg.Wait()
				close(errs)
				return <-errs
			}
		}
		m, err := interleave(3, many(b.ours), many(b.bwrapTrue))
		if err != nil {
			return err
		}
		rate := func(d time.Duration) string { return fmt.Sprintf("%.0f/s", float64(n*each)/d.Seconds()) }
		fmt.Fprintf(b.out, "launches, %d at once\t%s\t%s\t%s\t\n", n, rate(m[0]), rate(m[1]), ratio(m[1], m[0]))
	}
	return nil
}

// memory compares the private memory that an idle sandbox costs beside its
// command.
func (b *bench) memory() error {
	s := b.spec("/usr/bin/sleep", "100")
	p, err := nsexec.Start(s)
	if err != nil {
		return err
	}
	mine := privateKB(p.PID())
	p.Signal(syscall.SIGKILL)
	<-p.Done()

	argv := append([]string{*launcher}, append(withoutPID1(b.ref), "/usr/bin/sleep", "100")...)
	launcherKB, err := b.tree(argv)
	if err != nil {
		return err
	}
	bwrapKB, err := b.tree(append([]string{*bwrap}, argv[1:]...))
	if err != nil {
		return err
	}
	kb := func(n int) string { return fmt.Sprintf("%d KiB", n) }
	fmt.Fprintf(b.out, "private memory per idle sandbox, library\t%s\t%s\t%.2f\t\n", kb(mine), kb(bwrapKB), float64(mine)/float64(bwrapKB))
	fmt.Fprintf(b.out, "private memory per idle sandbox, launcher\t%s\t%s\t%.2f\t\n", kb(launcherKB), kb(bwrapKB), float64(launcherKB)/float64(bwrapKB))
	return nil
}

// tree starts a launcher whose command sleeps and adds up the private memory
// of every process it consists of but the command.
func (b *bench) tree(argv []string) (int, error) {
	f, err := os.Open(b.seccomp)
	if err != nil {
		return 0, err
	}
	defer f.Close()
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.ExtraFiles = []*os.File{f}
	if err := cmd.Start(); err != nil {
		return 0, err
	}
	defer cmd.Wait()
	defer cmd.Process.Kill()
	for range 1000 {
		pids := descendants(cmd.Process.Pid)
		total, sleeping := 0, false
		for i, pid := range pids {
			comm, _ := os.ReadFile(fmt.Sprintf("/proc/%d/comm", pid))
			if string(bytes.TrimSpace(comm)) == "sleep" {
				sleeping = true
			} else if !slices.ContainsFunc(pids[:i], func(other int) bool { return shareMemory(pid, other) }) {
				total += privateKB(pid)
			}
		}
		if sleeping {
			return total, nil
		}
		time.Sleep(time.Millisecond)
	}
	return 0, fmt.Errorf("%s: the command did not start", argv[0])
}

func descendants(pid int) []int {
	out := []int{pid}
	b, _ := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", pid, pid))
	for _, c := range strings.Fields(string(b)) {
		var n int
		fmt.Sscan(c, &n)
		out = append(out, descendants(n)...)
	}
	return out
}

// shareMemory reports whether two processes have one address space.
func shareMemory(a, b int) bool {
	const vm = 1 // KCMP_VM
	order, _, errno := unix.Syscall6(unix.SYS_KCMP, uintptr(a), uintptr(b), vm, 0, 0, 0)
	return errno == 0 && order == 0
}

// privateKB is what a process alone has and the kernel cannot simply drop:
// whether another one happens to map the same library is left out.
func privateKB(pid int) int {
	b, _ := os.ReadFile(fmt.Sprintf("/proc/%d/smaps_rollup", pid))
	total := 0
	for line := range strings.Lines(string(b)) {
		var n int
		if strings.HasPrefix(line, "Private_Dirty:") {
			fmt.Sscanf(line[strings.Index(line, ":")+1:], "%d", &n)
			total += n
		}
	}
	return total
}
