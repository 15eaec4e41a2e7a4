//go:build linux

package nsexec

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"

	"golang.org/x/sys/unix"
)

// writeMaps writes ranges of IDs for the stage's new user namespace.
func (l *launch) writeMaps() error {
	for _, m := range []struct {
		file, helper string
		ranges       []IDMap
	}{{"uid_map", "newuidmap", l.spec.UIDMap}, {"gid_map", "newgidmap", l.spec.GIDMap}} {
		if err := l.writeMap(m.file, m.helper, m.ranges); err != nil {
			return err
		}
	}
	return nil
}

func (l *launch) writeMap(file, helper string, ranges []IDMap) error {
	path := fmt.Sprintf("/proc/%d/%s", l.stage, file)
	var text strings.Builder
	args := []string{fmt.Sprint(l.stage)}
	for _, r := range ranges {
		fmt.Fprintf(&text, "%d %d %d\n", r.Inside, r.Outside, r.Count)
		args = append(args, fmt.Sprint(r.Inside), fmt.Sprint(r.Outside), fmt.Sprint(r.Count))
	}
	err := os.WriteFile(path, []byte(text.String()), 0)
	if err == nil {
		return nil
	}
	if !errors.Is(err, unix.EPERM) {
		return &StartError{Step: DoMap, On: path, Errno: errnoOf(err), Hint: hint(DoMap, errnoOf(err))}
	}
	// Only a privileged process may map IDs that are not its own; newuidmap
	// is, and consults /etc/subuid.
	tool, lookErr := exec.LookPath(helper)
	if lookErr != nil {
		return &StartError{Step: DoMap, On: path, Errno: unix.EPERM, Hint: "mapping ranges of IDs without root needs the program " + helper + " (Debian: uidmap)"}
	}
	if out, err := exec.Command(tool, args...).CombinedOutput(); err != nil {
		return &StartError{Step: DoMap, On: path, Errno: unix.EPERM, Hint: strings.TrimSpace(string(out))}
	}
	return nil
}
