//go:build linux

package main

import "testing"

func TestCaseTable(t *testing.T) {
	seen := map[string]bool{}
	for _, c := range Cases() {
		if seen[c.Name] {
			t.Errorf("two cases are called %q", c.Name)
		}
		seen[c.Name] = true
		for _, line := range []string{c.Line, c.Under} {
			if _, err := parseLine(line, map[string]string{"W": "/w", "PROBE": "/probe", "IMPL": "/impl"}); err != nil {
				t.Errorf("%s: %v", c.Name, err)
			}
		}
	}
	if len(seen) < 250 {
		t.Errorf("%d cases, want 250", len(seen))
	}
	for _, option := range allOptions {
		if !used(option) {
			t.Errorf("no case has %s", option)
		}
	}
	t.Logf("%d cases", len(seen))
}

func used(option string) bool {
	for _, c := range Cases() {
		for _, word := range optionWord.FindAllString(c.Line, -1) {
			if word == option {
				return true
			}
		}
	}
	return false
}
