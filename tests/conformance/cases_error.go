//go:build linux

package main

import (
	"fmt"
	"strings"
)

// errorCases give every option too little and wrong arguments.
func errorCases() []Case {
	var cases []Case
	add := func(name, line string) {
		// Parsing does not depend on who does it.
		cases = append(cases, Case{Name: "error/" + name, Line: line, As: Ordinary})
	}
	for arity, list := range [][]string{
		1: strings.Fields(`--args --argv0 --userns --userns2 --pidns --uid --gid --hostname --chdir --unsetenv --lock-file
			--sync-fd --remount-ro --overlay-src --tmp-overlay --ro-overlay --exec-label --file-label --proc --dev
			--tmpfs --mqueue --dir --seccomp --add-seccomp-fd --block-fd --userns-block-fd --info-fd
			--json-status-fd --cap-add --cap-drop --perms --size`),
		2: strings.Fields(`--setenv --bind --bind-try --dev-bind --dev-bind-try --ro-bind --ro-bind-try --bind-fd
			--ro-bind-fd --file --bind-data --ro-bind-data --symlink --chmod`),
		3: {"--overlay"},
	} {
		for _, option := range list {
			for given := range arity {
				add(fmt.Sprintf("%s with %d", option, given), option+strings.Repeat(" x", given))
			}
			for empty := range arity {
				words := make([]string, arity)
				for i := range words {
					if words[i] = "0"; i == empty {
						words[i] = "''"
					}
				}
				add(fmt.Sprintf("%s empty %d", option, empty), option+" "+strings.Join(words, " ")+" --bind / / true")
			}
			add(option+" with =", option+"=x --bind / / true")
		}
	}
	for _, option := range strings.Fields("--args --userns --userns2 --pidns --sync-fd --seccomp --add-seccomp-fd --block-fd --userns-block-fd --info-fd --json-status-fd --bind-fd --ro-bind-fd --file --bind-data --ro-bind-data") {
		for _, bad := range strings.Fields("x -1 3x 2147483648 99") {
			line := "$R " + option + " " + bad
			if strings.HasSuffix(option, "bind-fd") || strings.HasSuffix(option, "-data") || option == "--file" {
				line += " /mnt"
			}
			add(option+" "+bad, line+" true")
		}
	}
	for _, bad := range strings.Fields("8 -1 10000 abc 0x1 07777 1.5 +7 99999999999999999999") {
		add("--perms "+bad, "--perms "+bad+" --dir /d --ro-bind $PROBE /p /p")
		add("--chmod "+bad, "--dir /d --chmod "+bad+" /d --ro-bind $PROBE /p /p")
	}
	for _, bad := range strings.Fields("0 -1 abc 1k 18446744073709551615 18446744073709551616 9223372036854775808 0x 08 1.5") {
		add("--size "+bad, "--size "+bad+" --tmpfs /t --ro-bind $PROBE /p /p")
	}
	for _, bad := range strings.Fields("-1 0x10 abc 2147483648 4294967295 1.5 5x") {
		add("--uid "+bad, "--unshare-user --uid "+bad+" $R $PROBE")
		add("--gid "+bad, "--unshare-user --gid "+bad+" $R $PROBE")
	}
	for _, bad := range strings.Fields("net_admin CAP_ CAP_NONSENSE 12 cap_all ALLES CAP_SYS_ADMIN,CAP_CHOWN") {
		add("--cap-add "+bad, "--cap-add "+bad+" $R true")
		add("--cap-drop "+bad, "--cap-drop "+bad+" $R true")
	}
	for _, bad := range strings.Fields("--nonsense -x --bin --UNSHARE-PID --unshare --no-such=1 ---") {
		add("unknown "+bad, "$R "+bad+" true")
	}
	add("--setenv with = in the name", "$R --setenv A=B c $PROBE")
	add("--unsetenv with = in the name", "$R --unsetenv A=B $PROBE")
	add("--perms before nothing that takes it", "--perms 0700")
	add("command missing", "$R /missing/command")
	add("command not in PATH", "$R no-such-command")
	add("command not executable", "$R $W/f")
	add("command a directory", "$R $W/d")
	add("command empty", "$R ''")
	add("command below a file", "$R $W/f/x")
	add("command forbidden", "$R $W/private/secret")
	add("command relative", "$R ./d/../f")
	add("command with a long name", "$R /"+longName)
	add("nothing in the root", "true")
	add("destination too long", "--dir /"+longName+" true")
	add("two errors", "--cap-add nonsense --uid nonsense true")
	add("error before help", "--nonsense --help")
	add("missing source twice", "--bind $W/a /a --bind $W/b /b true")
	return cases
}
