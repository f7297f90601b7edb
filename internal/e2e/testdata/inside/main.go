// Inside is the only program of images that tests make: static, so that it needs
// nothing else of its image.
package main

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"
)

func main() {
	if len(os.Args) > 1 {
		switch os.Args[1] {
		case "compare":
			compare()
			return
		case "wait":
			wait()
		}
	}
	dir, err := os.Getwd()
	fmt.Printf("args %q\nuser %d:%d\ndir %s %v\nA %s\n", os.Args, os.Getuid(), os.Getgid(), dir, err, os.Getenv("A"))
}

// wait ends at SIGQUIT with status 7.
func wait() {
	c := make(chan os.Signal, 1)
	signal.Notify(c, syscall.SIGQUIT)
	fmt.Println("waiting")
	<-c
	fmt.Println("asked to stop")
	os.Exit(7)
}

// compare reads lines "SHA256 PATH" and holds each file against them, once read
// and once mapped.
func compare() {
	files, bad := 0, 0
	for in := bufio.NewScanner(os.Stdin); in.Scan(); {
		sum, path, _ := strings.Cut(in.Text(), " ")
		files++
		if err := compareFile(sum, path); err != nil {
			if bad++; bad < 20 {
				fmt.Printf("%q: %v\n", path, err)
			}
		}
	}
	fmt.Printf("%d files, %d bad\n", files, bad)
	if bad > 0 {
		os.Exit(1)
	}
}

// buffer holds the biggest of the files.
var buffer = make([]byte, 8<<20)

// compareFile takes as few system calls as it can: there are many files, and a
// call costs more in a sandbox than on the host.
func compareFile(want, path string) error {
	fd, err := syscall.Open(path, syscall.O_RDONLY|syscall.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer syscall.Close(fd)
	size := 0
	for {
		n, err := syscall.Read(fd, buffer[size:])
		if err != nil {
			return fmt.Errorf("read: %w", err)
		}
		if n == 0 {
			break
		}
		size += n
	}
	content := buffer[:size]
	if sum := sha256.Sum256(content); hex.EncodeToString(sum[:]) != want {
		return fmt.Errorf("read %d bytes, with another digest", size)
	}
	if size == 0 {
		return nil
	}
	m, err := syscall.Mmap(fd, 0, size, syscall.PROT_READ|syscall.PROT_EXEC, syscall.MAP_PRIVATE)
	if err != nil {
		return fmt.Errorf("map: %w", err)
	}
	defer syscall.Munmap(m)
	if !bytes.Equal(m, content) {
		return fmt.Errorf("mapped content differs")
	}
	return nil
}
