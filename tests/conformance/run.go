//go:build linux

package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/populationgenomics/postern-go/tests/conformance/internal/wire"
)

// A launch takes some 20 ms. One that takes this long never ends.
const hangsAfter = 20 * time.Second

// hangs is the exit status of a launch that was given up.
const hangs = "hangs"

// A Bench holds what the launches of one session share.
type Bench struct {
	*machine
	dir   string // everything made for the session
	probe string
	count atomic.Int64

	children children
}

// NewBench prepares a session in a new directory; Close removes it.
func NewBench() (*Bench, error) {
	// Whoever started us may have left us descriptors, which no launch should see.
	unix.CloseRange(3, ^uint(0), unix.CLOSE_RANGE_CLOEXEC)
	// What outlives its launcher comes to us.
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return nil, err
	}
	// Files and directories are made with the modes that the tables name.
	unix.Umask(0o022)
	m, err := observeMachine()
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "postern-conformance")
	if err != nil {
		return nil, err
	}
	// The ordinary user works below.
	if err := os.Chmod(dir, 0o755); err != nil {
		return nil, err
	}
	b := &Bench{machine: m, dir: dir, probe: filepath.Join(dir, "probe")}
	return b, buildProbe(b.probe)
}

// Close removes what the session left on disk.
func (b *Bench) Close() error { return os.RemoveAll(b.dir) }

// An Implementation is one program to compare.
type Implementation struct {
	Name    string
	Version string   // as in "0.13.1"
	dir     string   // holds it under the name bwrap
	options []string // that --help lists
}

// Implementation copies the program to where any user can run it, under the name bwrap.
func (b *Bench) Implementation(name, program string) (*Implementation, error) {
	dir := filepath.Join(b.dir, fmt.Sprintf("bin%d", b.count.Add(1)))
	if err := os.Mkdir(dir, 0o755); err != nil {
		return nil, err
	}
	data, err := os.ReadFile(program)
	if err != nil {
		return nil, err
	}
	path := filepath.Join(dir, "bwrap")
	if err := os.WriteFile(path, data, 0o755); err != nil {
		return nil, err
	}
	out, err := exec.Command(path, "--version").Output()
	if err != nil {
		return nil, fmt.Errorf("%s --version: %w", program, err)
	}
	version := regexp.MustCompile(`\d+(\.\d+)*`).FindString(string(out))
	help, err := exec.Command(path, "--help").Output()
	if err != nil {
		return nil, fmt.Errorf("%s --help: %w", program, err)
	}
	return &Implementation{name, version, dir, optionWord.FindAllString(string(help), -1)}, nil
}

// A run is one launch in the making.
type run struct {
	bench *Bench
	impl  *Implementation
	c     Case
	uid   int
	w     string
	in    *inherited
	view  *view
	// socket is the guest's end of the control socket as /proc shows it.
	socket string
}

// Run launches c as user uid. An error is the harness's own failure; what the launch does is in the report.
func (b *Bench) Run(impl *Implementation, c Case, uid int) (*Report, error) {
	report, err := b.once(impl, c, uid)
	if err == nil && report.Exit == hangs {
		// The machine may have stood still for that long: what hangs does so again.
		return b.once(impl, c, uid)
	}
	return report, err
}

func (b *Bench) once(impl *Implementation, c Case, uid int) (*Report, error) {
	r := &run{bench: b, impl: impl, c: c, uid: uid}
	r.w = filepath.Join(b.dir, fmt.Sprintf("w%08d", b.count.Add(1)))
	defer removeScratch(r.w)
	roots, err := newScratch(r.w, uid)
	if err != nil {
		return nil, fmt.Errorf("scratch directory: %w", err)
	}
	r.in = newInherited(r)
	defer r.in.close()
	r.view = &view{machine: b.machine, in: r.in, names: map[int]string{}, replace: strings.NewReplacer(
		r.w, "$W", b.probe, "$PROBE", impl.dir, "$IMPL",
		// In the root field of mountinfo paths start at the file system, not at its mount point.
		r.relativeToMount(r.w), "$W", r.relativeToMount(b.probe), "$PROBE",
		// And a launcher may have made the same path again somewhere else.
		filepath.Join(filepath.Base(b.dir), filepath.Base(r.w)), "$W",
	)}
	report, err := r.do(roots)
	if err != nil {
		return nil, fmt.Errorf("%s as %d: %w", c.Name, uid, err)
	}
	return report, nil
}

func (r *run) relativeToMount(path string) string {
	best := ""
	for _, point := range r.bench.devices {
		if strings.HasPrefix(path, point+"/") && len(point) > len(best) {
			best = point
		}
	}
	return strings.TrimPrefix(path, best)
}

func (r *run) credential() *syscall.Credential {
	if os.Geteuid() != 0 || r.uid == 0 {
		return nil
	}
	return &syscall.Credential{Uid: uint32(r.uid), Gid: uint32(r.uid), Groups: []uint32{uint32(r.uid)}}
}

func (r *run) names() map[string]string {
	return map[string]string{"W": r.w, "PROBE": r.bench.probe, "IMPL": r.impl.dir}
}

// words turns a line into arguments, opening the descriptors on the way.
func (r *run) words(line string) ([]string, error) {
	parsed, err := parseLine(line, r.names())
	if err != nil {
		return nil, err
	}
	var words []string
	for _, w := range parsed {
		text := ""
		for _, p := range w {
			text += p.text
			if p.descriptor != nil {
				n, err := r.in.number(p.descriptor)
				if err != nil {
					return nil, err
				}
				text += strconv.Itoa(n)
			}
		}
		words = append(words, text)
	}
	return words, nil
}

func (r *run) do(roots []wire.FileID) (*Report, error) {
	if r.c.Before != "" {
		script := exec.Command("sh", "-euc", r.c.Before)
		script.Dir = r.w
		script.Env = append(os.Environ(), "W="+r.w)
		var out bytes.Buffer
		script.Stdout, script.Stderr = &out, &out
		err := r.bench.children.start(script)
		if err == nil {
			err = r.bench.children.wait(script)
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w: %s", r.c.Before, err, out.String())
		}
	}
	under, err := r.words(r.c.Under)
	if err != nil {
		return nil, err
	}
	words, err := r.words(r.c.Line)
	if err != nil {
		return nil, err
	}
	before := snapshot(r.w)

	control, theirs, err := socketpair()
	if err != nil {
		return nil, err
	}
	defer control.Close()
	if err := r.ask(control, roots); err != nil {
		theirs.Close()
		return nil, err
	}
	stderr, err := memfd(nil)
	if err != nil {
		return nil, err
	}
	defer stderr.Close()

	argv := append(append(under, filepath.Join(r.impl.dir, "bwrap")), words...)
	if len(under) > 0 {
		if argv[0], err = exec.LookPath(argv[0]); err != nil {
			return nil, err
		}
	}
	cmd := &exec.Cmd{
		Path: argv[0], Args: argv, Dir: r.w, Stdin: r.in.files[0], Stdout: theirs, Stderr: stderr,
		Env: append([]string{
			"PATH=" + r.impl.dir + ":/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin",
			"HOME=" + r.w + "/home", "LC_ALL=C", "PWD=" + r.w, "OLDPWD=/", "CANARY=sings",
		}, r.c.Env...),
		SysProcAttr: &syscall.SysProcAttr{Credential: r.credential(), Setpgid: !r.c.Terminal, Setsid: r.c.Terminal},
	}
	if len(under) == 0 {
		cmd.Args[0] = "bwrap"
	}
	if r.c.Dir != "" {
		cmd.Dir = r.view.expand(r.c.Dir, r.names())
		cmd.Env = append(cmd.Env, "PWD="+cmd.Dir)
	}
	if stdin := r.in.files[0]; stdin == nil {
		null, err := os.Open(os.DevNull)
		if err != nil {
			return nil, err
		}
		defer null.Close()
		cmd.Stdin = null
		r.in.label(null, "null")
	}
	if r.c.Terminal {
		terminal, slave, err := openTerminal()
		if err != nil {
			return nil, err
		}
		defer terminal.Close()
		defer slave.Close()
		r.in.files[3] = theirs
		cmd.Stdin, cmd.Stdout, cmd.Stderr = slave, slave, slave
		cmd.SysProcAttr.Setctty = true
		r.in.label(slave, "terminal")
		stderr = terminal
	}
	r.in.label(theirs, "control")
	r.socket, _ = os.Readlink(fmt.Sprintf("/proc/self/fd/%d", theirs.Fd()))
	if !r.c.Terminal {
		r.in.label(stderr, "stderr")
	}
	cmd.ExtraFiles = r.in.extra()
	err = r.bench.children.start(cmd)
	theirs.Close()
	if err != nil {
		return nil, err
	}
	// Nobody but the launch may hold these open, or nothing would ever end.
	for n, f := range r.in.files {
		if f != nil {
			f.Close()
			r.in.files[n] = nil
		}
	}
	report := r.follow(cmd, control)
	report.Outlived = append(report.Outlived, r.leftovers()...)
	report.Host = map[string]string{}
	for name, text := range changes(before, snapshot(r.w)) {
		report.Host[r.view.replace.Replace(name)] = r.view.replace.Replace(text)
	}
	report.StderrText = r.view.replace.Replace(readTerminalOrFile(stderr, r.c.Terminal))
	report.Stderr = classify(r.normalDocument(report.StderrText))
	report.Stdout = r.normalDocument(r.view.replace.Replace(report.Stdout))
	return report, nil
}

// expand replaces the names of the table language in a plain string.
func (v *view) expand(s string, names map[string]string) string {
	for name, value := range names {
		s = strings.ReplaceAll(s, "$"+name, value)
	}
	return s
}

// ask puts the question where the probe will find it.
func (r *run) ask(control *os.File, roots []wire.FileID) error {
	question, err := json.Marshal(wire.Question{
		PosternProbe: 1, Roots: roots, KnownDevices: r.bench.deviceNumbers(),
		Paths: append([]string{r.w}, interestingPaths...), OpenForWriting: interestingFiles, Exit: r.c.Exit,
	})
	if err != nil {
		return err
	}
	_, err = unix.Write(int(control.Fd()), append(question, '\n'))
	return err
}

func socketpair() (ours, theirs *os.File, err error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, nil, err
	}
	// The kernel then tells who sent what.
	err = unix.SetsockoptInt(fds[0], unix.SOL_SOCKET, unix.SO_PASSCRED, 1)
	return os.NewFile(uintptr(fds[0]), "control"), os.NewFile(uintptr(fds[1]), "guest's"), err
}

func openTerminal() (master, slave *os.File, err error) {
	master, err = os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		return nil, nil, err
	}
	if err = unix.IoctlSetPointerInt(int(master.Fd()), unix.TIOCSPTLCK, 0); err != nil {
		return nil, nil, err
	}
	n, err := unix.IoctlGetInt(int(master.Fd()), unix.TIOCGPTN)
	if err != nil {
		return nil, nil, err
	}
	slave, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|unix.O_NOCTTY, 0)
	return master, slave, err
}

// readTerminalOrFile returns what was written to standard error.
func readTerminalOrFile(f *os.File, terminal bool) string {
	if !terminal {
		f.Seek(0, io.SeekStart)
		data, _ := io.ReadAll(f)
		return string(data)
	}
	fd := int(f.Fd()) // once: it makes the file blocking
	unix.SetNonblock(fd, true)
	buf := make([]byte, 1<<16)
	n, _ := unix.Read(fd, buf)
	return strings.ReplaceAll(string(buf[:max(n, 0)]), "\r\n", "\n")
}

// follow accompanies a launch from its start to the launcher's end.
func (r *run) follow(cmd *exec.Cmd, control *os.File) *Report {
	report := &Report{Documents: map[string]string{}, Blocked: map[string]bool{}}
	launcher := cmd.Process.Pid
	exited := make(chan error, 1)
	go func() { exited <- r.bench.children.wait(cmd) }()
	heard := make(chan hello, 1)
	go func() { heard <- listen(control) }()
	deadline := time.After(hangsAfter)

	var probe *hello
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	pending, quiet := len(r.in.blocks), 0
	var err error
	done := false
	for !done && probe == nil {
		// Only blocked launches need watching.
		var ticks <-chan time.Time
		if pending > 0 {
			ticks = tick.C
		}
		select {
		case h := <-heard:
			if h.answered {
				probe = &h
			} else {
				report.Stdout = h.before
				heard = nil
			}
		case err = <-exited:
			done = true
		case <-deadline:
			return r.hang(report, launcher, exited)
		case <-ticks:
			// One look may find everyone waiting for each other.
			if quiet++; !asleep(launcher) {
				quiet = 0
			}
			if quiet < 10 {
				continue
			}
			for label, w := range r.in.blocks {
				report.Blocked[label] = true
				if label == r.in.maps {
					r.writeMaps(launcher)
				}
				w.Write([]byte("x"))
			}
			pending = 0
		}
	}
	if probe != nil {
		report.Stdout = probe.before
		pids := chain(launcher, probe.pid)
		for label := range r.in.blocks {
			if pending > 0 {
				report.Blocked[label] = false
			}
		}
		report.Guest = r.view.guest(pids, probe.answer)
		watched := watch(descendantsOf(launcher))
		defer closeAll(watched)
		if r.c.Signal != 0 {
			unix.Kill(launcher, r.c.Signal)
		} else {
			unix.Write(int(control.Fd()), []byte{wire.Quit})
		}
		select {
		case err = <-exited:
		case <-deadline:
			return r.hang(report, launcher, exited)
		}
		report.Outlived = r.outlived(watched)
	} else if heard != nil {
		// The launcher is gone, yet what the command wrote may still be on the way to us.
		unix.Shutdown(int(control.Fd()), unix.SHUT_RD)
		h := <-heard
		report.Stdout = h.before
	}
	report.Exit = exitText(err)
	r.collect(report)
	return report
}

func exitText(err error) string {
	var exit *exec.ExitError
	switch {
	case err == nil:
		return "0"
	case errors.As(err, &exit):
		if status := exit.Sys().(syscall.WaitStatus); status.Signaled() {
			return "signal: " + status.Signal().String()
		}
		return strconv.Itoa(exit.ExitCode())
	}
	return err.Error()
}

func (r *run) hang(report *Report, launcher int, exited <-chan error) *Report {
	report.Exit = hangs
	for _, pid := range append(descendantsOf(launcher), launcher) {
		unix.Kill(pid, unix.SIGKILL)
	}
	<-exited
	r.collect(report)
	return report
}

// collect reads the documents. Their writers may live on, so what is there now has to do.
func (r *run) collect(report *Report) {
	for label, f := range r.in.outputs {
		fd := int(f.Fd()) // once: it makes the file blocking
		unix.SetNonblock(fd, true)
		buf := make([]byte, 1<<16)
		text := ""
		for {
			n, err := unix.Read(fd, buf)
			if err == unix.EINTR {
				continue
			}
			if n <= 0 {
				break
			}
			text += string(buf[:n])
		}
		report.Documents[label] = r.normalDocument(text)
	}
}

var documentNumber = regexp.MustCompile(`"(child-pid|[a-z]+-namespace)": (\d+)`)

func (r *run) normalDocument(text string) string {
	return documentNumber.ReplaceAllStringFunc(text, func(s string) string {
		m := documentNumber.FindStringSubmatch(s)
		n, _ := strconv.ParseUint(m[2], 10, 64)
		value := "new"
		if m[1] == "child-pid" {
			value = r.view.pid(int(n))
		} else if name := r.view.namespaceName(strings.TrimSuffix(m[1], "-namespace"), n); name != "" {
			value = name
		}
		return fmt.Sprintf("%q: <%s>", m[1], value)
	})
}

// hello is what came over the control socket.
type hello struct {
	before   string
	answered bool
	pid      int
	answer   wire.Answer
}

// listen reads until the probe has answered or everyone has closed the other end.
func listen(control *os.File) hello {
	var h hello
	var received []byte
	buf := make([]byte, 1<<16)
	oob := make([]byte, unix.CmsgSpace(unix.SizeofUcred))
	for {
		n, oobn, _, _, err := unix.Recvmsg(int(control.Fd()), buf, oob, 0)
		if err == unix.EINTR {
			continue
		}
		if err != nil || n == 0 {
			h.before = string(received)
			return h
		}
		received = append(received, buf[:n]...)
		before, answer, found := bytes.Cut(received, []byte(wire.Hello))
		if !found {
			continue
		}
		if messages, err := unix.ParseSocketControlMessage(oob[:oobn]); err == nil && len(messages) > 0 {
			if cred, err := unix.ParseUnixCredentials(&messages[0]); err == nil && h.pid == 0 {
				h.pid = int(cred.Pid)
			}
		}
		if bytes.HasSuffix(answer, []byte("\n")) && json.Unmarshal(answer, &h.answer) == nil {
			h.before = string(before)
			h.answered = true
			return h
		}
	}
}

// asleep tells whether the launcher and everything it started only wait.
func asleep(launcher int) bool {
	pids := append(descendantsOf(launcher), launcher)
	if len(pids) < 2 {
		return false
	}
	for _, pid := range pids {
		if fields := stat(pid); len(fields) == 0 || fields[0] != "S" {
			return false
		}
	}
	return true
}

// writeMaps plays the part of newuidmap.
func (r *run) writeMaps(launcher int) {
	for _, pid := range descendantsOf(launcher) {
		if procFile(pid, "uid_map") == "" {
			os.WriteFile(fmt.Sprintf("/proc/%d/uid_map", pid), fmt.Appendf(nil, "0 %d 1\n7 70000 5\n", r.uid), 0)
			os.WriteFile(fmt.Sprintf("/proc/%d/gid_map", pid), fmt.Appendf(nil, "0 %d 1\n7 70000 5\n", r.uid), 0)
		}
	}
}

// watch opens a pidfd for each process.
func watch(pids []int) map[int]int {
	fds := map[int]int{}
	for _, pid := range pids {
		if fd, err := unix.PidfdOpen(pid, 0); err == nil {
			fds[pid] = fd
		}
	}
	return fds
}

func closeAll(fds map[int]int) {
	for _, fd := range fds {
		unix.Close(fd)
	}
}

// outlived returns the names of the processes that neither have ended nor are about to: the kill that the
// launcher's death causes is pending before we hear of that death.
func (r *run) outlived(watched map[int]int) []string {
	var names []string
	pids := make([]int, 0, len(watched))
	for pid := range watched {
		pids = append(pids, pid)
	}
	slices.Sort(pids) // parents first, as far as numbers do not wrap
	for _, pid := range pids {
		for quiet := 0; quiet < 10 && !ended(watched[pid]); time.Sleep(time.Millisecond) {
			if state := stat(pid); len(state) > 0 && state[0] == "S" && !dying(pid) {
				quiet++
			} else {
				quiet = 0
			}
		}
		if !ended(watched[pid]) {
			names = append(names, r.view.pid(pid))
			defer unix.PidfdSendSignal(watched[pid], unix.SIGKILL, nil, 0)
		}
	}
	return names
}

func ended(pidfd int) bool {
	n, _ := unix.Poll([]unix.PollFd{{Fd: int32(pidfd), Events: unix.POLLIN}}, 0)
	return n > 0
}

// leftovers ends the processes of this launch that lost their parent and wait for something, and returns
// their names. They have become our children, because a bench is a subreaper.
func (r *run) leftovers() (names []string) {
	quiet := map[int]int{}
	for {
		busy := false
		for _, pid := range r.bench.children.orphans() {
			if !r.owns(pid) {
				continue
			}
			busy = true
			if state := stat(pid); len(state) > 0 && state[0] == "S" && !dying(pid) {
				quiet[pid]++
			} else {
				quiet[pid] = 0
			}
			if quiet[pid] == 10 {
				names = append(names, r.view.pid(pid))
				unix.Kill(pid, unix.SIGKILL)
			}
		}
		if !busy {
			return names
		}
		time.Sleep(time.Millisecond)
	}
}

// owns tells whether a process comes from this launch: it still has our end of the control socket, or the
// environment that only this launch was given.
func (r *run) owns(pid int) bool {
	if strings.Contains(procFile(pid, "environ"), "HOME="+r.w+"/home") {
		return true
	}
	links, _ := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", pid))
	for _, link := range links {
		if target, _ := os.Readlink(link); target == r.socket {
			return true
		}
	}
	return false
}

func dying(pid int) bool {
	fields := stat(pid)
	if len(fields) == 0 || strings.Contains("ZXx", fields[0]) {
		return true
	}
	const kill = 1 << (unix.SIGKILL - 1)
	for line := range strings.Lines(procFile(pid, "status")) {
		key, value, _ := strings.Cut(line, ":")
		if key == "SigPnd" || key == "ShdPnd" {
			if set, _ := strconv.ParseUint(strings.TrimSpace(value), 16, 64); set&kill != 0 {
				return true
			}
		}
	}
	return false
}
