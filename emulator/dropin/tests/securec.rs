//! Functions of `libc_sec.so` in a C program.

use std::fs;
use std::process::Command;

use ascend_tp_emulator_dropin::{real_library, write_libraries};

/// Returns the line of the first failed check. The marker bytes after the buffer must not change.
const PROGRAM: &str = r#"
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
int strcpy_s(char *to, size_t room, const char *from);
int vsnprintf_s(char *to, size_t room, size_t count, const char *format, va_list arguments);
int memcpy_s(void *to, size_t room, const void *from, size_t count);
int memmove_s(void *to, size_t room, const void *from, size_t count);
int memset_s(void *to, size_t room, int value, size_t count);
int strcat_s(char *to, size_t room, const char *from);
int strncat_s(char *to, size_t room, const char *from, size_t count);
int strncpy_s(char *to, size_t room, const char *from, size_t count);
static char text[8];
static int print(size_t room, size_t count, const char *format, ...) {
    va_list arguments;
    memset(text, '!', sizeof text);
    va_start(arguments, format);
    int written = vsnprintf_s(text, room, count, format, arguments);
    va_end(arguments);
    return written;
}
#define IS(found) if (!(found)) return __LINE__
int main(void) {
    memset(text, '!', sizeof text);
    IS(strcpy_s(text, 4, "abc") == 0 && memcmp(text, "abc\0!!!!", 8) == 0);
    IS(strcpy_s(text, 3, "xyz") == 34 + 128 && memcmp(text, "\0bc\0!!!!", 8) == 0);
    IS(strcpy_s(text, 0, "") == 34 && strcpy_s(text, 1UL << 31, "") == 34 && strcpy_s(NULL, 4, "") == 22);
    text[0] = '!';
    IS(strcpy_s(text, 4, NULL) == 22 + 128 && text[0] == 0 && text[1] == 'b');
    IS(print(7, 6, "%d:%s", 42, "abc") == 6 && memcmp(text, "42:abc\0!", 8) == 0);
    IS(print(7, 3, "%d:%s", 42, "abc") == -1 && memcmp(text, "42:\0!!!!", 8) == 0);
    IS(print(4, 7, "%d:%s", 42, "abc") == -1 && text[0] == 0 && memcmp(text + 4, "!!!!", 4) == 0);
    IS(print(0, 3, "x") == -1 && text[0] == '!');
    IS(memset_s(text, 6, 'x', 4) == 0 && memcmp(text, "xxxx", 4) == 0);
    IS(memset_s(text, 6, 'y', 7) == 34 + 128 && memcmp(text, "yyyyyy!", 7) == 0);
    IS(memset_s(NULL, 6, 0, 1) == 22 && memset_s(text, 0, 0, 1) == 34);
    IS(memcpy_s(text, 6, "abcd", 4) == 0 && memcmp(text, "abcdyy!", 7) == 0);
    IS(memcpy_s(text, 6, text + 2, 4) == 54 + 128 && memcmp(text, "\0\0\0\0\0\0!", 7) == 0);
    IS(memcpy_s(text, 6, "abcd", 4) == 0 && memmove_s(text + 1, 5, text, 3) == 0 && memcmp(text, "aabc", 4) == 0);
    IS(memcpy_s(text, 3, "abcd", 4) == 34 + 128 && memcmp(text, "\0\0\0c", 4) == 0);
    IS(memcpy_s(NULL, 3, "a", 1) == 22 && memcpy_s(text, 3, NULL, 1) == 22 + 128);
    IS(strncpy_s(text, 6, "abcdefgh", 3) == 0 && strcmp(text, "abc") == 0);
    IS(strcat_s(text, 6, "de") == 0 && strcmp(text, "abcde") == 0);
    IS(strncat_s(text, 6, "fgh", 1) == 34 + 128 && text[0] == 0 && text[6] == '!');
    IS(strncat_s(text, 6, "fgh", 1) == 0 && strcmp(text, "f") == 0);
    IS(strncpy_s(text, 3, "abc", 3) == 34 + 128 && text[0] == 0);
    IS(strncpy_s(text, 0, "a", 1) == 34 && strncat_s(text, 0, "a", 1) == 34 && strcat_s(text, 0, "a") == 34);
    IS(strncpy_s(NULL, 3, "a", 1) == 22 && strncat_s(NULL, 3, "a", 1) == 22 && strcat_s(NULL, 3, "a") == 22);
    memcpy(text, "ab\0!!!!!", 8);
    IS(strncpy_s(text, 6, NULL, 1) == 22 + 128 && memcmp(text, "\0b", 2) == 0);
    text[0] = 'a';
    IS(strncat_s(text, 6, NULL, 1) == 22 + 128 && memcmp(text, "\0b", 2) == 0);
    text[0] = 'a';
    IS(strcat_s(text, 6, NULL) == 22 + 128 && memcmp(text, "\0b", 2) == 0);
    text[0] = 'a';
    IS(strncpy_s(text, 6, "c", 1UL << 31) == 34 + 128 && memcmp(text, "\0b", 2) == 0);
    text[0] = 'a';
    IS(strncat_s(text, 6, "c", 1UL << 31) == 34 + 128 && memcmp(text, "\0b", 2) == 0);
    text[0] = 'a';
    IS(strcpy_s(text, 6, text) == 0 && strcmp(text, "ab") == 0);
    IS(strncpy_s(text, 6, text, 1) == 0 && strcmp(text, "a") == 0);
    IS(strncpy_s(text, 6, "abc", 0) == 0 && text[0] == 0);
    memcpy(text, "abcd\0!!", 7);
    IS(strcpy_s(text, 6, text + 1) == 54 + 128 && memcmp(text, "\0bcd\0!!", 7) == 0);
    text[0] = 'a';
    IS(strncpy_s(text + 1, 5, text, 2) == 54 + 128 && memcmp(text, "a\0cd\0!!", 7) == 0);
    memcpy(text, "a\0cd\0!!", 7);
    IS(strncat_s(text, 6, text + 2, 2) == 54 + 128 && memcmp(text, "\0\0cd\0!!", 7) == 0);
    memcpy(text, "a\0cd\0!!", 7);
    IS(strcat_s(text, 6, text + 2) == 54 + 128 && text[0] == 0);
    memcpy(text, "abc", 4);
    IS(strcat_s(text, 8, text) == 34 + 128 && text[0] == 0);
    memset(text, '!', sizeof text);
    IS(strncat_s(text, 4, "a", 1) == 22 + 128 && memcmp(text, "\0!!!!", 5) == 0);
    memset(text, '!', sizeof text);
    IS(strcat_s(text, 4, "a") == 22 + 128 && memcmp(text, "\0!!!!", 5) == 0);
    return 0;
}
"#;

#[test]
fn what_does_not_fit_is_an_error_and_nothing_is_written_beyond() {
    let folder = tempfile::tempdir().expect("a folder");
    let place = folder.path();
    write_libraries(place, &real_library().expect("cargo built the shared library")).expect("written");
    let (source, program) = (place.join("program.c"), place.join("program"));
    fs::write(&source, PROGRAM).expect("written");
    let mut cc = Command::new("cc");
    cc.arg(&source).arg("-o").arg(&program).arg("-L").arg(place).args(["-lascendcl", "-lc_sec"]);
    assert!(cc.status().expect("cc runs").success());
    let ended = Command::new(&program).env("LD_LIBRARY_PATH", place).status().expect("the program runs");
    assert_eq!(ended.code(), Some(0), "the line of the program that is not so");
}
