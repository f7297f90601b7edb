package runtimetest

import "testing"

var execCases, outputCases, jobCases, terminalCases, fileCases, sessionCases, linuxCases []guestCase

func testSuspend(e *env)                    {}
func testHostCrash(t *testing.T, f Factory) {}
