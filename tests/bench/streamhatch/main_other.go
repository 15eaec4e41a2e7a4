//go:build !linux

package main

import "log"

func main() { log.Fatal("hatches need Linux") }
