package postern

import (
	"bufio"
	"bytes"
	"os"
	"strconv"
	"strings"
)

// An oomCounter counts the processes killed for lack of memory: those of the
// memory cgroup of this process, which guests belong to, or else those of the
// whole machine. It stays open because it is read before every run.
type oomCounter struct{ file *os.File }

func openOOMCounter() oomCounter {
	groups, _ := os.ReadFile("/proc/self/cgroup")
	for line := range strings.Lines(string(groups)) {
		parts := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(parts) != 3 {
			continue
		}
		var candidates []string
		switch { // a container can see its own cgroup at the top
		case parts[0] == "0": // version 2
			candidates = []string{"/sys/fs/cgroup" + parts[2] + "/memory.events", "/sys/fs/cgroup/memory.events"}
		case parts[1] == "memory": // version 1
			candidates = []string{"/sys/fs/cgroup/memory" + parts[2] + "/memory.oom_control", "/sys/fs/cgroup/memory/memory.oom_control"}
		}
		for _, path := range candidates {
			if f, err := os.Open(path); err == nil {
				return oomCounter{f}
			}
		}
	}
	f, _ := os.Open("/proc/vmstat")
	return oomCounter{f}
}

// read returns how many there have been so far, 0 if that cannot be known.
func (c oomCounter) read() uint64 {
	var buf [16 << 10]byte
	n, _ := c.file.ReadAt(buf[:], 0)
	for sc := bufio.NewScanner(bytes.NewReader(buf[:n])); sc.Scan(); {
		if v, found := strings.CutPrefix(sc.Text(), "oom_kill "); found {
			kills, _ := strconv.ParseUint(v, 10, 64)
			return kills
		}
	}
	return 0
}

func (c oomCounter) close() { c.file.Close() }
