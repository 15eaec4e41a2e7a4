//go:build linux

package main

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/populationgenomics/postern-go/tests/conformance/internal/wire"
)

// inherited are the descriptors a launch passes on, beyond the standard three, and what belongs to them on
// our side.
type inherited struct {
	files  map[int]*os.File // by number in the launcher; nil where a number has to stay closed
	byName map[string]int
	labels map[wire.FileID]string
	// spaces are the labels of namespaces that were made for this launch, by inode.
	spaces  map[uint64]string
	outputs map[string]*os.File // read ends, by label
	blocks  map[string]*os.File // write ends, by label
	maps    string              // label of the block that waits for someone to write the ID maps
	closers []func()
	run     *run
}

func newInherited(r *run) *inherited {
	return &inherited{
		files: map[int]*os.File{}, byName: map[string]int{}, labels: map[wire.FileID]string{},
		spaces: map[uint64]string{}, outputs: map[string]*os.File{}, blocks: map[string]*os.File{}, run: r,
	}
}

func (in *inherited) close() {
	for _, f := range in.files {
		if f != nil {
			f.Close()
		}
	}
	for _, f := range in.outputs {
		f.Close()
	}
	for _, f := range in.blocks {
		f.Close()
	}
	for _, c := range in.closers {
		c()
	}
}

// descriptorKinds make the file that the launcher inherits.
var descriptorKinds map[string]func(in *inherited, label, text string) (*os.File, error)

func init() {
	descriptorKinds = map[string]func(in *inherited, label, text string) (*os.File, error){
		// What can be read from it is the text; then it ends.
		"pipe":  func(_ *inherited, _, text string) (*os.File, error) { return filledPipe([]byte(text)) },
		"memfd": func(_ *inherited, _, text string) (*os.File, error) { return memfd([]byte(text)) },
		"file":  plainFile,
		// Words separated by blanks, for --args: with and without the last NUL.
		"args": func(_ *inherited, _, text string) (*os.File, error) {
			return filledPipe([]byte(strings.Join(strings.Fields(text), "\x00")))
		},
		"argsz": func(_ *inherited, _, text string) (*os.File, error) {
			return memfd([]byte(strings.Join(strings.Fields(text), "\x00") + "\x00"))
		},
		// The text is a number: so many words.
		"manyargs": func(_ *inherited, _, text string) (*os.File, error) {
			n, err := strconv.Atoi(text)
			if err != nil {
				return nil, err
			}
			return memfd([]byte(strings.Repeat("--unshare-ipc\x00", n)))
		},
		// What the launcher writes there becomes part of the report.
		"out": func(in *inherited, label, _ string) (*os.File, error) {
			r, w, err := os.Pipe()
			in.outputs[label] = r
			return w, err
		},
		// Only who holds it matters.
		"sync": func(in *inherited, _, _ string) (*os.File, error) {
			r, w, err := os.Pipe()
			in.closers = append(in.closers, func() { r.Close() })
			return w, err
		},
		// A byte comes once everything sleeps.
		"block": func(in *inherited, label, _ string) (*os.File, error) {
			r, w, err := os.Pipe()
			in.blocks[label] = w
			return r, err
		},
		// The same, after the ID maps have been written from outside.
		"mapsblock": func(in *inherited, label, _ string) (*os.File, error) {
			r, w, err := os.Pipe()
			in.blocks[label] = w
			in.maps = label
			return r, err
		},
		"open": func(_ *inherited, _, path string) (*os.File, error) { return os.Open(path) },
		"path": func(_ *inherited, _, path string) (*os.File, error) {
			return os.OpenFile(path, unix.O_PATH, 0)
		},
		"removed": func(_ *inherited, _, path string) (*os.File, error) {
			f, err := os.Open(path)
			if err == nil {
				err = os.RemoveAll(path)
			}
			return f, err
		},
		// A user namespace in which the launching user is itself; or, with the text root, root.
		"userns": func(in *inherited, label, text string) (*os.File, error) {
			return in.namespace(label, "user", mapOption(text))
		},
		// A user namespace inside a user namespace: the outer one is the descriptor that {text} names.
		"userns2": func(in *inherited, label, text string) (*os.File, error) {
			outer := in.files[in.byName[text]]
			if outer == nil {
				return nil, fmt.Errorf("no descriptor {%s}", text)
			}
			return in.namespace(label, "user", "--map-current-user", outer)
		},
		"pidns": func(in *inherited, label, text string) (*os.File, error) {
			return in.namespace(label, "pid", mapOption(text))
		},
		// Not a namespace of the kind asked for.
		"netns": func(in *inherited, label, _ string) (*os.File, error) { return os.Open("/proc/self/ns/net") },
		"bpf":   func(_ *inherited, _, text string) (*os.File, error) { return seccompProgram(text) },
		// A number that is not open.
		"closed": func(*inherited, string, string) (*os.File, error) { return nil, nil },
	}
}

// number returns the descriptor's number, opening it first if it is new.
func (in *inherited) number(d *descriptor) (int, error) {
	if d.kind == "" {
		n, ok := in.byName[d.name]
		if !ok {
			return 0, fmt.Errorf("no descriptor is called %q", d.name)
		}
		return n, nil
	}
	n, err := strconv.Atoi(d.name)
	if err != nil {
		n = 3
		if in.run.c.Terminal {
			n = 4
		}
		for _, taken := in.files[n]; taken; _, taken = in.files[n] {
			n++
		}
	}
	label := d.name
	if label == "" {
		label = fmt.Sprintf("%s%d", d.kind, n)
	}
	f, err := descriptorKinds[d.kind](in, label, d.text)
	if err != nil {
		return 0, fmt.Errorf("{%s:%s}: %w", d.kind, d.text, err)
	}
	in.files[n] = f
	in.byName[d.name] = n
	if f != nil {
		in.label(f, label)
	}
	return n, nil
}

func (in *inherited) label(f *os.File, label string) {
	var st unix.Stat_t
	if unix.Fstat(int(f.Fd()), &st) == nil {
		in.labels[wire.FileID{Dev: st.Dev, Ino: st.Ino}] = label
	}
}

// extra returns the files in the form of [exec.Cmd.ExtraFiles].
func (in *inherited) extra() []*os.File {
	highest := 2
	for n := range in.files {
		highest = max(highest, n)
	}
	files := make([]*os.File, highest-2)
	for n, f := range in.files {
		if n > 2 {
			files[n-3] = f
		}
	}
	return files
}

func filledPipe(data []byte) (*os.File, error) {
	r, w, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	if len(data) > 60000 {
		return nil, fmt.Errorf("%d bytes do not fit into a pipe", len(data))
	}
	_, err = w.Write(data)
	w.Close()
	return r, err
}

func memfd(data []byte) (*os.File, error) {
	fd, err := unix.MemfdCreate("conformance", unix.MFD_CLOEXEC)
	if err != nil {
		return nil, err
	}
	f := os.NewFile(uintptr(fd), "memfd")
	if _, err := f.Write(data); err != nil {
		return nil, err
	}
	_, err = f.Seek(0, io.SeekStart)
	return f, err
}

func plainFile(_ *inherited, _, text string) (*os.File, error) {
	f, err := os.CreateTemp("", "conformance")
	if err != nil {
		return nil, err
	}
	os.Remove(f.Name())
	if _, err := f.WriteString(text); err != nil {
		return nil, err
	}
	_, err = f.Seek(0, io.SeekStart)
	return f, err
}

func mapOption(text string) string {
	if text == "root" {
		return "--map-root-user"
	}
	return "--map-current-user"
}

// namespace makes one, owned by the user that launches, and keeps it alive until the run is over: unshare(1)
// runs a cat that we keep waiting.
func (in *inherited) namespace(label, kind, option string, inside ...*os.File) (*os.File, error) {
	argv := []string{"unshare", "--user", option}
	if kind == "pid" {
		argv = append(argv, "--pid", "--fork", "--kill-child")
	}
	argv = append(argv, "sh", "-c", "echo ready; exec cat")
	if len(inside) > 0 {
		argv = append([]string{"nsenter", "--preserve-credentials", "--user=/proc/self/fd/3"}, argv...)
	}
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.ExtraFiles = inside
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: in.run.credential()}
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "LC_ALL=C"}
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	children := &in.run.bench.children
	if err := children.start(cmd); err != nil {
		return nil, err
	}
	in.closers = append(in.closers, func() { stdin.Close(); children.waitReaping(cmd) })
	if _, err := io.ReadFull(stdout, make([]byte, len("ready\n"))); err != nil {
		return nil, fmt.Errorf("%v: %s", argv, stderr.String())
	}
	pid := cmd.Process.Pid
	if kind == "pid" {
		children := childrenOf(pid)
		if len(children) != 1 {
			return nil, fmt.Errorf("%v has %d children", argv, len(children))
		}
		pid = children[0]
	}
	f, err := os.Open(fmt.Sprintf("/proc/%d/ns/%s", pid, kind))
	if err != nil {
		return nil, err
	}
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		return nil, err
	}
	in.spaces[st.Ino] = label
	return f, nil
}

// seccompProgram encodes one of a few filters, right and wrong ones.
func seccompProgram(name string) (*os.File, error) {
	allow := unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ALLOW}
	deny := func(nr uint32, errno unix.Errno) []unix.SockFilter {
		return []unix.SockFilter{
			{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS}, // the number of the call
			{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: nr, Jf: 1},
			{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ERRNO | uint32(errno)},
			allow,
		}
	}
	var program []unix.SockFilter
	switch name {
	case "empty":
	case "odd":
		return memfd(make([]byte, 13))
	case "zeroes": // the right length, no valid end
		return memfd(make([]byte, 16))
	case "allow":
		program = []unix.SockFilter{allow}
	case "nosocket":
		program = deny(unix.SYS_SOCKET, unix.EACCES)
	case "nopriority":
		program = deny(unix.SYS_GETPRIORITY, unix.EACCES)
	case "nouname":
		program = deny(unix.SYS_UNAME, unix.EACCES)
	case "noopenat2": // as a kernel that has neither that nor mount_setattr
		program = slices.Concat(
			deny(unix.SYS_OPENAT2, unix.ENOSYS)[:3], deny(unix.SYS_MOUNT_SETATTR, unix.ENOSYS)[1:3], []unix.SockFilter{allow})
	case "noexec":
		program = deny(unix.SYS_EXECVE, unix.EACCES)
	default:
		return nil, fmt.Errorf("no filter is called %q", name)
	}
	var out bytes.Buffer
	binary.Write(&out, binary.NativeEndian, program)
	return memfd(out.Bytes())
}
