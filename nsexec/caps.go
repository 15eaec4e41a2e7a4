//go:build linux

package nsexec

import (
	"fmt"
	"math/bits"
	"strings"

	"golang.org/x/sys/unix"
)

// A CapSet is a set of capabilities, capability N at bit N.
type CapSet uint64

// AllCaps has every capability there is or will be.
const AllCaps CapSet = 1<<63 - 1

const capKill CapSet = 1 << unix.CAP_KILL

var capNames = [...]string{
	"CHOWN", "DAC_OVERRIDE", "DAC_READ_SEARCH", "FOWNER", "FSETID", "KILL", "SETGID", "SETUID", "SETPCAP",
	"LINUX_IMMUTABLE", "NET_BIND_SERVICE", "NET_BROADCAST", "NET_ADMIN", "NET_RAW", "IPC_LOCK", "IPC_OWNER",
	"SYS_MODULE", "SYS_RAWIO", "SYS_CHROOT", "SYS_PTRACE", "SYS_PACCT", "SYS_ADMIN", "SYS_BOOT", "SYS_NICE",
	"SYS_RESOURCE", "SYS_TIME", "SYS_TTY_CONFIG", "MKNOD", "LEASE", "AUDIT_WRITE", "AUDIT_CONTROL", "SETFCAP",
	"MAC_OVERRIDE", "MAC_ADMIN", "SYSLOG", "WAKE_ALARM", "BLOCK_SUSPEND", "AUDIT_READ", "PERFMON", "BPF",
	"CHECKPOINT_RESTORE",
}

// CapByName returns the set with one capability, named as in CAP_NET_ADMIN,
// in either case.
func CapByName(name string) (CapSet, bool) {
	short, ok := strings.CutPrefix(strings.ToUpper(name), "CAP_")
	for i, n := range capNames {
		if ok && n == short {
			return 1 << i, true
		}
	}
	return 0, false
}

func (c CapSet) String() string {
	if c == AllCaps {
		return "all"
	}
	var names []string
	for rest := uint64(c); rest != 0; rest &= rest - 1 {
		i := bits.TrailingZeros64(rest)
		if i < len(capNames) {
			names = append(names, "CAP_"+capNames[i])
		} else {
			names = append(names, fmt.Sprintf("CAP_%d", i))
		}
	}
	if len(names) == 0 {
		return "none"
	}
	return strings.Join(names, " ")
}
