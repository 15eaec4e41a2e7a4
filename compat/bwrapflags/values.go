//go:build linux

package bwrapflags

import (
	"math"
	"strconv"
	"strings"

	"github.com/populationgenomics/postern-go/nsexec"
)

const cSpace = " \t\n\v\f\r"

// cNumber does what strtol does in the C locale, and refuses what does not
// fit.
func cNumber(s string, base int) (int64, bool) {
	digits := strings.TrimLeft(s, cSpace)
	if strings.ContainsRune(digits, '_') {
		return 0, false
	}
	n, err := strconv.ParseInt(digits, base, 64)
	return n, err == nil
}

// smallNumber reads a descriptor or an ID.
func smallNumber(s string) (int, bool) {
	n, ok := cNumber(s, 10)
	return int(n), ok && n >= 0 && n <= math.MaxInt32
}

func octalMode(s string) (uint32, bool) {
	n, ok := cNumber(s, 8)
	return uint32(n), ok && n >= 0 && n <= 0o7777
}

// byteCount reads a size: decimal, octal with a leading 0 or hexadecimal with
// 0x. No sign and no unit.
func byteCount(s string) (uint64, bool) {
	if s == "" || s[0] < '0' || s[0] > '9' || strings.ContainsAny(s, "_oObB") && !strings.HasPrefix(strings.ToLower(s), "0x") {
		return 0, false
	}
	n, err := strconv.ParseUint(s, 0, 64)
	return n, err == nil && n > 0 && !strings.ContainsRune(s, '_')
}

// capability reads the name of one capability, or its number.
func capability(s string) (nsexec.CapSet, bool) {
	if c, ok := nsexec.CapByName(s); ok {
		return c, true
	}
	n, err := strconv.ParseUint(s, 10, 8)
	return 1 << (n & 63), err == nil && n < 64
}
