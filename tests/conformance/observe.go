//go:build linux

package main

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/moby/sys/mountinfo"
	"golang.org/x/sys/unix"

	"github.com/populationgenomics/postern-go/tests/conformance/internal/wire"
)

var namespaceKinds = []string{"cgroup", "ipc", "mnt", "net", "pid", "time", "user", "uts"}

// A machine is what all launches have in common: this host.
type machine struct {
	spaces  map[string]uint64 // inode of our own namespaces, by kind
	devices map[uint64]string // first mount point of each mounted device
	cgroup  string
	session int
}

func observeMachine() (*machine, error) {
	m := &machine{spaces: map[string]uint64{}, devices: map[uint64]string{}}
	for _, kind := range namespaceKinds {
		var st unix.Stat_t
		if err := unix.Stat("/proc/self/ns/"+kind, &st); err != nil {
			return nil, err
		}
		m.spaces[kind] = st.Ino
	}
	mounts, err := mountinfo.GetMounts(nil)
	if err != nil {
		return nil, err
	}
	for _, mount := range mounts {
		device := unix.Mkdev(uint32(mount.Major), uint32(mount.Minor))
		if _, known := m.devices[device]; !known {
			m.devices[device] = mount.Mountpoint
		}
		// Some file systems give their files another device number than the mount has.
		var st unix.Stat_t
		if unix.Lstat(mount.Mountpoint, &st) == nil {
			if _, known := m.devices[st.Dev]; !known {
				m.devices[st.Dev] = mount.Mountpoint
			}
		}
	}
	cgroup, err := os.ReadFile("/proc/self/cgroup")
	m.cgroup = string(cgroup)
	if err == nil {
		m.session, err = unix.Getsid(0)
	}
	return m, err
}

func (m *machine) deviceNumbers() []uint64 {
	var numbers []uint64
	for n := range m.devices {
		numbers = append(numbers, n)
	}
	return numbers
}

// childrenOf returns the child processes of all threads of pid.
func childrenOf(pid int) (children []int) {
	files, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid))
	for _, file := range files {
		text, _ := os.ReadFile(file)
		for _, field := range strings.Fields(string(text)) {
			if child, err := strconv.Atoi(field); err == nil {
				children = append(children, child)
			}
		}
	}
	return children
}

func descendantsOf(pid int) (all []int) {
	for _, child := range childrenOf(pid) {
		all = append(append(all, child), descendantsOf(child)...)
	}
	return all
}

// procFile reads one file of a process, "" if there is none.
func procFile(pid int, name string) string {
	data, _ := os.ReadFile(fmt.Sprintf("/proc/%d/%s", pid, name))
	return strings.TrimSuffix(string(data), "\n")
}

// stat returns the fields of /proc/pid/stat from the state on, which is field 3 of the manual.
func stat(pid int) []string {
	_, rest, ok := strings.Cut(procFile(pid, "stat"), ") ")
	if !ok {
		return nil
	}
	return strings.Fields(rest)
}

// settle returns when a process that waits for the command has come to that. The command runs already, but its
// parent may have something left to do.
func settle(pid int) {
	for range 1000 {
		if fields := stat(pid); len(fields) == 0 || fields[0] != "R" {
			return
		}
		time.Sleep(time.Millisecond)
	}
}

func parentOf(pid int) int {
	fields := stat(pid)
	if len(fields) < 2 {
		return 0
	}
	parent, _ := strconv.Atoi(fields[1])
	return parent
}

// chain returns the processes from the launcher down to the command.
func chain(launcher, command int) []int {
	pids := []int{command}
	for pid := command; pid != launcher && pid > 1; {
		pid = parentOf(pid)
		if pid > 1 && pid != os.Getpid() {
			pids = append(pids, pid)
		}
	}
	slices.Reverse(pids)
	return pids
}

// A view looks at the processes of one launch and calls things by names that are the same in every launch.
type view struct {
	*machine
	in      *inherited
	replace *strings.Replacer // names for paths
	names   map[int]string    // names for process IDs
}

// name labels the processes of a chain.
func (v *view) nameChain(pids []int) {
	for i, pid := range pids {
		switch {
		case i == len(pids)-1:
			v.names[pid] = "command"
		case i == 0:
			v.names[pid] = "launcher"
		default:
			v.names[pid] = fmt.Sprintf("init%d", i)
		}
	}
}

func (v *view) pid(pid int) string {
	if name, ok := v.names[pid]; ok {
		return name
	}
	switch pid {
	case 0:
		return "0"
	case v.session:
		return "host"
	}
	return "other"
}

func (v *view) process(pid int) Process {
	status := map[string]string{}
	for line := range strings.Lines(procFile(pid, "status")) {
		key, value, _ := strings.Cut(line, ":")
		status[key] = strings.Join(strings.Fields(value), " ")
	}
	p := Process{
		Comm:           status["Name"],
		UIDMap:         idMap(procFile(pid, "uid_map")),
		GIDMap:         idMap(procFile(pid, "gid_map")),
		Setgroups:      procFile(pid, "setgroups"),
		UIDs:           status["Uid"],
		GIDs:           status["Gid"],
		Groups:         status["Groups"],
		NoNewPrivs:     status["NoNewPrivs"],
		Seccomp:        status["Seccomp"] + " filters " + status["Seccomp_filters"],
		SignalsBlocked: status["SigBlk"],
		SignalsIgnored: status["SigIgn"],
		OOMScoreAdj:    procFile(pid, "oom_score_adj"),
		Capabilities:   map[string]string{},
		Namespaces:     map[string]string{},
	}
	for _, set := range []string{"CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"} {
		p.Capabilities[set] = status[set]
	}
	for _, kind := range namespaceKinds {
		p.Namespaces[kind] = v.namespace(pid, kind)
	}
	// In the host's numbers the first is different every time.
	if pids := strings.Fields(status["NSpid"]); len(pids) > 1 {
		p.PIDs = strings.Join(pids[1:], " ")
	}
	if fields := stat(pid); len(fields) > 3 {
		group, _ := strconv.Atoi(fields[2])
		session, _ := strconv.Atoi(fields[3])
		p.Group, p.Session = v.pid(group), v.pid(session)
	}
	if p.Cgroup = "ours"; procFile(pid, "cgroup") != strings.TrimSuffix(v.cgroup, "\n") {
		p.Cgroup = "other"
	}
	root, _ := os.Readlink(fmt.Sprintf("/proc/%d/root", pid))
	p.Root = v.replace.Replace(root)
	p.FDs = v.fds(pid)
	return p
}

func idMap(text string) string {
	var lines []string
	for line := range strings.Lines(text) {
		lines = append(lines, strings.Join(strings.Fields(line), " "))
	}
	return strings.Join(lines, "; ")
}

func (v *view) namespace(pid int, kind string) string {
	path := fmt.Sprintf("/proc/%d/ns/%s", pid, kind)
	var st unix.Stat_t
	if err := unix.Stat(path, &st); err != nil {
		return err.Error()
	}
	if name := v.namespaceName(kind, st.Ino); name != "" {
		return name
	}
	if kind != "user" && kind != "pid" {
		return "new"
	}
	// These are nested: tell below what, and how deep.
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	for depth := 1; err == nil; depth++ {
		var parent int
		parent, err = unix.IoctlRetInt(fd, unix.NS_GET_PARENT)
		unix.Close(fd)
		if err != nil {
			break
		}
		if err = unix.Fstat(parent, &st); err != nil {
			unix.Close(parent)
			break
		}
		if name := v.namespaceName(kind, st.Ino); name != "" {
			unix.Close(parent)
			return fmt.Sprintf("new, %d below %s", depth, name)
		}
		fd = parent
	}
	return "new, " + err.Error()
}

func (v *view) namespaceName(kind string, inode uint64) string {
	if inode == v.spaces[kind] {
		return "host"
	}
	return v.in.spaces[inode]
}

// fds returns those descriptors of a process that were handed down to it. What it has opened for itself says
// how it works and not what it does.
func (v *view) fds(pid int) map[string]string {
	entries, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid))
	if err != nil {
		return map[string]string{"error": errors.Unwrap(err).Error()}
	}
	fds := map[string]string{}
	for _, entry := range entries {
		path := fmt.Sprintf("/proc/%d/fd/%s", pid, entry.Name())
		var st unix.Stat_t
		if err := unix.Stat(path, &st); err != nil {
			continue // closed since
		}
		if label, ok := v.in.labels[wire.FileID{Dev: st.Dev, Ino: st.Ino}]; ok {
			fds[entry.Name()] = label
		}
	}
	return fds
}

var inodeNumber = regexp.MustCompile(`\[\d+\]`)

func (v *view) mounts(pid int) map[string]Mount {
	list, err := mountinfo.GetMountsFromReader(bytes.NewReader([]byte(procFile(pid, "mountinfo")+"\n")), nil)
	if err != nil {
		return map[string]Mount{"error": {Source: err.Error()}}
	}
	points := map[int]string{}
	key := func(info *mountinfo.Info) string {
		n := 0
		for _, other := range list {
			if other.ID == info.ID {
				break
			}
			if other.Mountpoint == info.Mountpoint {
				n++
			}
		}
		name := v.replace.Replace(info.Mountpoint)
		if n > 0 {
			name += fmt.Sprintf(" over %d", n)
		}
		return name
	}
	for _, info := range list {
		points[info.ID] = key(info)
	}
	mounts := map[string]Mount{}
	for _, info := range list {
		if info.FSType == "tracefs" {
			continue // appears when anybody on the machine looks there
		}
		var kinds []string
		for field := range strings.FieldsSeq(info.Optional) {
			kind, _, _ := strings.Cut(field, ":")
			kinds = append(kinds, kind)
		}
		device, known := v.devices[unix.Mkdev(uint32(info.Major), uint32(info.Minor))]
		if !known {
			device = "new"
		}
		root := inodeNumber.ReplaceAllString(info.Root, "[]")
		if info.FSType == "devpts" && root != "/" {
			root = "/N"
		}
		mounts[points[info.ID]] = Mount{
			Parent:       cmp.Or(points[info.Parent], "outside"),
			Device:       device,
			Root:         temporaryName.ReplaceAllString(v.replace.Replace(root), "bindfile"),
			Options:      sortedOptions(info.Options),
			Propagation:  strings.Join(kinds, ","),
			FSType:       info.FSType,
			Source:       v.replace.Replace(info.Source),
			SuperOptions: v.replace.Replace(sortedOptions(info.VFSOptions)),
		}
	}
	return mounts
}

// temporaryName is what bwrap calls the files of --bind-data.
var temporaryName = regexp.MustCompile(`bindfile\w{6}`)

func sortedOptions(list string) string {
	options := strings.Split(list, ",")
	slices.Sort(options)
	return strings.Join(options, ",")
}

// guest joins what the probe said with what is seen from here.
func (v *view) guest(pids []int, a wire.Answer) *Guest {
	command := pids[len(pids)-1]
	v.nameChain(pids)
	g := &Guest{
		Argv: v.all(a.Argv), Env: map[string]string{}, Cwd: v.replace.Replace(a.Cwd),
		UID: [2]int{a.UID, a.EUID}, GID: [2]int{a.GID, a.EGID}, Groups: a.Groups,
		Hostname: a.Hostname, Umask: fmt.Sprintf("%04o", a.Umask), Nice: a.Nice,
		Dumpable: a.Dumpable, DeathSignal: a.DeathSignal, Securebits: a.Securebits, Subreaper: a.Subreaper,
		Blocked: a.Blocked, Ignored: a.Ignored, Rlimits: a.Rlimits,
		Writable: map[string]string{}, Network: a.Interfaces, Loopback: a.Loopback,
		NewUserNS: a.NewUserNamespace, InitComm: a.InitComm, ProcSelf: a.ProcSelf,
		FDs: map[int]string{}, Files: map[string]wire.File{},
		Ancestors: map[string]Process{}, Mounts: v.mounts(command),
		Process: v.process(command),
	}
	for _, entry := range a.Env {
		name, value, _ := strings.Cut(v.replace.Replace(entry), "=")
		if other, twice := g.Env[name]; twice {
			value = other + " and " + value
		}
		g.Env[name] = value
	}
	// By now the probe's runtime has opened descriptors of its own; see FDs.
	g.Process.FDs = nil
	g.Terminal = regexp.MustCompile(`/dev/pts/\d+`).ReplaceAllString(a.Terminal, "/dev/pts/N")
	exe, _ := os.Readlink(fmt.Sprintf("/proc/%d/exe", command))
	g.Exe = v.replace.Replace(exe)
	if g.Process.Namespaces["pid"] != "host" {
		g.PID, g.Parent = strconv.Itoa(a.PID), strconv.Itoa(a.PPID)
	} else {
		g.PID, g.Parent = v.pid(a.PID), v.pid(a.PPID)
		g.InitComm = "" // the machine's
	}
	for n, fd := range a.FDs {
		g.FDs[n] = fd.Type + " " + v.in.labels[fd.FileID] + " " + fd.Flags
	}
	for path, f := range a.Files {
		f.Link = v.replace.Replace(f.Link)
		f.Content = v.replace.Replace(f.Content)
		if strings.HasPrefix(f.Device, "136:") { // a terminal
			f.Device = "136:N"
		}
		g.Files[v.replace.Replace(path)] = f
	}
	for path, text := range a.Writable {
		g.Writable[v.replace.Replace(path)] = text
	}
	for _, pid := range pids[:len(pids)-1] {
		settle(pid)
		g.Ancestors[v.pid(pid)] = v.process(pid)
	}
	return g
}

func (v *view) all(list []string) []string {
	result := make([]string, len(list))
	for i, s := range list {
		result[i] = v.replace.Replace(s)
	}
	return result
}
