//go:build linux

package main

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestParseLine(t *testing.T) {
	words, err := parseLine(`--a 'two words' '' x$W/y'z' {pipe:a b\0c} --fd={7=out} {7}`, map[string]string{"W": "/w"})
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, w := range words {
		text := ""
		for _, p := range w {
			text += p.text
			if p.descriptor != nil {
				text += "<" + p.descriptor.name + "|" + p.descriptor.kind + "|" + p.descriptor.text + ">"
			}
		}
		got = append(got, text)
	}
	want := []string{"--a", "two words", "", "x/w/yz", "<|pipe|a b\x00c>", "--fd=<7|out|>", "<7||>"}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
	for _, bad := range []string{"'open", "{pipe:x", "$NOTHING", "{nokind:x}", "{pipe:\\q}"} {
		if _, err := parseLine(bad, nil); err == nil {
			t.Errorf("%s: no error", bad)
		}
	}
}

func TestShrinkKeepsWhatMatters(t *testing.T) {
	c := Case{Parts: []string{"--a", "--b x", "--c", "--d", "cmd"}}
	got := Shrink(c, func(c Case) bool { return strings.Contains(c.Line, "--b") && strings.Contains(c.Line, "--d") })
	if got.Line != "--b x --d cmd" {
		t.Errorf("left with %q", got.Line)
	}
}

func TestGeneratedLinesDependOnTheSeedOnly(t *testing.T) {
	if d := cmp.Diff(Generate(7, 50), Generate(7, 50)); d != "" {
		t.Error(d)
	}
	if cmp.Equal(Generate(7, 50), Generate(8, 50)) {
		t.Error("two seeds gave the same command lines")
	}
	for _, c := range Generate(7, 500) {
		if _, err := parseLine(c.Line, map[string]string{"W": "/w", "PROBE": "/probe", "IMPL": "/impl"}); err != nil {
			t.Errorf("%s: %v", c.Line, err)
		}
	}
}

// With the root writable, a command line that ran as root could change the machine.
func TestGeneratedLinesStayInTheScratchDirectory(t *testing.T) {
	for seed := range uint64(20) {
		for _, c := range Generate(seed, 500) {
			// As root the mode of a proc that is not a new PID namespace's is the host's.
			if strings.Contains(c.Line, "--chmod ") && (strings.Contains(c.Line, "--proc ") || strings.Contains(c.Line, "--mqueue ")) {
				t.Errorf("%s: %s", c.Name, c.Line)
			}
			if !strings.Contains(c.Line, "--bind / /") && !strings.Contains(c.Line, "--dev-bind / /") {
				continue
			}
			for _, part := range c.Parts {
				words := strings.Fields(part)
				if last := words[len(words)-1]; strings.HasPrefix(last, "/") && strings.HasPrefix(part, "--") &&
					part != "--bind / /" && part != "--dev-bind / /" && !harmless(words[0]) {
					t.Errorf("%s: %s", c.Name, part)
				}
			}
		}
	}
}

func harmless(option string) bool {
	switch option {
	case "--setenv", "--chdir", "--argv0", "--proc", "--dev":
		return true
	}
	return false
}

func TestDiffNamesTheField(t *testing.T) {
	a := &Report{Exit: "0", Host: map[string]string{"f": "x"}, Guest: &Guest{Env: map[string]string{}, Mounts: map[string]Mount{"/a": {Root: "/"}}}}
	b := &Report{Exit: "1", StderrText: "ignored", Host: map[string]string{}, Guest: &Guest{Env: map[string]string{"A": "1"}, Mounts: map[string]Mount{"/a": {Root: "/x"}}}}
	var got []string
	for _, d := range Diff(a, b) {
		got = append(got, d.String())
	}
	want := []string{
		`Exit: "0" | "1"`,
		`Guest.Env[A]: absent | "1"`,
		`Guest.Mounts[/a].Root: "/" | "/x"`,
		`Host[f]: "x" | absent`,
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
}

func TestOverlaps(t *testing.T) {
	at := func(fields ...string) (list []Difference) {
		for _, f := range fields {
			list = append(list, Difference{Field: f})
		}
		return list
	}
	for _, c := range []struct {
		field string
		newer []Difference
		want  bool
	}{
		{"Exit", at("Exit"), true},
		{"Guest.Env[A]", at("Guest"), true},
		{"Guest", at("Guest.Env[A]"), true},
		{"Guest.Env[A]", at("Guest.Env[AB]", "Guest.Envy", "Exit"), false},
	} {
		if got := overlaps(c.field, c.newer); got != c.want {
			t.Errorf("overlaps(%q, %v) = %v", c.field, c.newer, got)
		}
	}
}

func TestDecidingRuleListsWhatFollows(t *testing.T) {
	rules := []Rule{{Case: "a/* as root", Field: "Stderr", Theirs: "[bwrap: no *]", Ours: "[]", Decides: true}}
	differences := []Difference{
		{Field: "Exit", A: `"1"`, B: `"0"`},
		{Field: "Guest", A: "none", B: "present"},
		{Field: "Outlived", A: "[]", B: "[other]"},
		{Field: "Stderr", A: "[bwrap: no such thing]", B: "[]"},
	}
	for _, c := range []struct {
		name    string
		decided int
		want    []int
	}{
		{"a/b", -1, []int{0, 0, -1, 0}},
		{"b/b", -1, []int{-1, -1, -1, -1}},
		{"b/b", 0, []int{0, 0, -1, -1}}, // by the newest bwrap
	} {
		got, _ := rulesFor(rules, Launch{Case: Case{Name: c.name}}, differences, c.decided)
		if d := cmp.Diff(c.want, got); d != "" {
			t.Errorf("%s: %s", c.name, d)
		}
	}
}

func TestRulesAreWellFormed(t *testing.T) {
	for _, r := range Rules {
		if r.Class != Better && r.Class != Deliberate {
			t.Errorf("%s / %s: class %q", r.Case, r.Field, r.Class)
		}
		if len(r.Reason) < 15 {
			t.Errorf("%s / %s: the reason %q explains nothing", r.Case, r.Field, r.Reason)
		}
		if strings.Trim(r.Case+r.Field, "*") == "" {
			t.Error("a rule for everything")
		}
	}
}
