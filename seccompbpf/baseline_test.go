package seccompbpf

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/populationgenomics/postern-go/internal/testutil"
)

// originalSHA256 is the digest of the filter that the Python postern ships.
const originalSHA256 = "212af7866a5e543e6ed3516b538e944e012c879c698d9bd8b941d1c6bc0850a2"

// Where Baseline means to differ from that filter: a foreign architecture. libseccomp ends the
// thread, which leaves a threaded program hanging; ours ends the process. Neither runs the call.
var deliberate = map[[2]Action]string{
	{KillThread, KillProcess}: "uncovered architecture",
}

func TestBaselineDecidesAsOriginal(t *testing.T) {
	raw, err := os.ReadFile("testdata/baseline.bpf")
	if err != nil {
		t.Fatal(err)
	}
	if sum := sha256.Sum256(raw); hex.EncodeToString(sum[:]) != originalSHA256 {
		t.Fatal("testdata/baseline.bpf is not the original's filter")
	}
	original, err := Parse(raw)
	if err != nil {
		t.Fatal(err)
	}
	compareEverywhere(t, original, compile(t, Baseline()))
}

func TestBaselineDecidesAsLibseccomp(t *testing.T) {
	raw, err := exec.Command(buildOracle(t), "filter").Output()
	if err != nil {
		t.Fatal(err)
	}
	oracle, err := Parse(raw)
	if err != nil {
		t.Fatal(err)
	}
	compareEverywhere(t, oracle, compile(t, Baseline()))
}

func TestComparisonSeesOneMissingRule(t *testing.T) {
	whole := compile(t, Baseline())
	for _, r := range Baseline().Rules {
		weaker := compile(t, Baseline().Without(r.Syscall))
		if len(differences(whole, weaker, 1)) == 0 {
			t.Errorf("a filter without %q passes for the whole one", r.Syscall)
		}
	}
}

func compareEverywhere(t *testing.T, want, got Filter) {
	t.Helper()
	for _, d := range differences(want, got, 20) {
		t.Error(d)
	}
}

// differences runs both filters over every number that matters on every architecture, until it
// has found limit differences.
func differences(want, got Filter, limit int) []string {
	var diffs []string
	allArgs := sweepArgs()
	for _, arch := range sweepArchs() {
		_, _, covered := Identify(arch, 0)
		for _, nr := range sweepNumbers() {
			for _, args := range allArgs {
				d := Data{Arch: arch, Nr: nr, Args: args}
				w, g := want.Verdict(d), got.Verdict(d)
				if w == g || !covered && deliberate[[2]Action{w, g}] != "" {
					continue
				}
				diffs = append(diffs, fmt.Sprintf("arch %#x nr %#x args %#x: %v, want %v", arch, nr, args, g, w))
				if len(diffs) == limit {
					return diffs
				}
			}
		}
	}
	return diffs
}

func sweepArchs() []uint32 {
	return []uint32{
		auditAMD64, auditI386, auditARM64, auditARM,
		0, ^uint32(0), auditAMD64 &^ 0x80000000, auditARM64 &^ 0x40000000,
		0xc00000f3, // riscv64
		0x80000016, // s390x
		0x00000028, // big-endian arm
	}
}

func sweepNumbers() []uint32 {
	var nrs []uint32
	for nr := range uint32(601) {
		nrs = append(nrs, nr, x32Bit|nr)
	}
	for nr := uint32(0xf0000); nr < 0xf0010; nr++ {
		nrs = append(nrs, nr)
	}
	return append(nrs, 0x3fffffff, 0x7fffffff, 0x80000000, 0x800000a5, 0xc00000a5, 0xffffffff)
}

// sweepArgs crosses values of the two arguments that Baseline looks at.
func sweepArgs() [][6]uint64 {
	const high = 1 << 32
	flags := []uint64{
		0, cloneNewUser, cloneNewUser | 17, cloneNewUser | high, cloneNewUser<<32 | 17,
		^uint64(cloneNewUser), ^uint64(0), 0x0003d0f00, 0x7e020000 &^ cloneNewUser,
	}
	requests := []uint64{
		0, tiocsti, tioclinux, tiocsti | high, tioclinux | high, tiocsti<<32 | 0x5413, tiocsti << 32,
		tiocsti - 1, tiocsti + 1, tioclinux - 1, tioclinux + 1, 0xffffffff00000000 | tiocsti, ^uint64(0),
	}
	var all [][6]uint64
	for _, f := range flags {
		for _, r := range requests {
			all = append(all, [6]uint64{f, r})
		}
	}
	return all
}

// The tables against libseccomp's, number by number and in both directions.
func TestTablesAgreeWithLibseccomp(t *testing.T) {
	out, err := exec.Command(buildOracle(t), "names").Output()
	if err != nil {
		t.Fatal(err)
	}
	byName := make(map[string]ABI)
	for _, abi := range ABIs() {
		byName[abi.String()] = abi
	}
	newest := make(map[ABI]uint32)
	theirs := make(map[ABI]map[uint32]string)
	lines := bufio.NewScanner(bytes.NewReader(out))
	for lines.Scan() {
		f := strings.Fields(lines.Text())
		abi, nr64 := byName[f[0]], must(strconv.ParseUint(f[1], 10, 32))
		nr := uint32(nr64)
		if theirs[abi] == nil {
			theirs[abi] = make(map[uint32]string)
		}
		theirs[abi][nr] = f[2]
		if nr&^x32Bit < 512 { // not the ranges that x32 and arm have besides
			newest[abi] = max(newest[abi], nr)
		}
	}
	for _, abi := range ABIs() {
		if len(theirs[abi]) < 300 {
			t.Fatalf("%s: libseccomp named only %d calls", abi, len(theirs[abi]))
		}
		for nr, name := range theirs[abi] {
			if ours, _ := abi.Name(nr); ours != name {
				t.Errorf("%s: %#x is %q to us, %q to libseccomp", abi, nr, ours, name)
			}
		}
		for _, e := range abis[abi].table {
			if theirs[abi][e.nr] == "" && e.nr <= newest[abi] && !newerThanLibseccomp[e.name] {
				t.Errorf("%s: %#x %q is unknown to libseccomp", abi, e.nr, e.name)
			}
		}
	}
}

// newerThanLibseccomp names calls which came, on some ABI, to numbers below the newest that
// libseccomp 2.5.4 knows there.
var newerThanLibseccomp = map[string]bool{"uretprobe": true, "uprobe": true, "map_shadow_stack": true}

func buildOracle(t *testing.T) string {
	t.Helper()
	bin := filepath.Join(t.TempDir(), "oracle")
	testutil.RequireTool(t, "gcc")
	out, err := exec.Command("gcc", "-o", bin, "testdata/oracle.c", "-lseccomp").CombinedOutput()
	if err != nil {
		testutil.Missing(t, fmt.Sprintf("building with libseccomp (package libseccomp-dev): %v\n%s", err, out))
	}
	return bin
}

func compile(t *testing.T, p Policy) Filter {
	t.Helper()
	f, err := p.Compile()
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func compileFor(t *testing.T, p Policy, arch string) Filter {
	t.Helper()
	f, err := p.CompileFor(arch)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}
