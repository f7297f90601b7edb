// Package soak runs sandboxes through their lives again and again, kills what
// takes part in them at random moments, and looks for what stays behind. Its
// short runs belong to every test run; scripts/soak.sh does the long ones.
package soak
