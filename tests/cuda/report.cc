// SPDX-License-Identifier: Apache-2.0
#include "tests/cuda/report.h"
#include "tests/cuda/emulator.h"
#include "tests/cuda/forever.h"
#include <atomic>
#include <link.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
#include <unordered_map>

static void (*handler)(const char *, void *);
static void *handler_argument;
static auto &first = emu_forever<std::string>();
static std::atomic<bool> failed;

std::string emu_format(const char *format, ...)
{
    char text[2048];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    return text;
}

std::string emu_place_text(emu_place at)
{
    const char *slash = strrchr(at.file, '/');
    return emu_format("%s:%d", slash ? slash + 1 : at.file, at.line);
}

// ---- lines of code -------------------------------------------------------------------------------------------------

extern "C" char __executable_start;

emu_pc emu_pc_of(const void *return_address)
{
    return (emu_pc)((uintptr_t)return_address - (uintptr_t)&__executable_start);
}

// What was added to the addresses of the program's file when it was loaded.
static int report_load_address(struct dl_phdr_info *info, size_t, void *address)
{
    *(uintptr_t *)address = info->dlpi_addr;
    return 1;  // the program itself comes first
}

static std::string report_find_line(emu_pc pc)
{
    uintptr_t loaded = 0;
    dl_iterate_phdr(report_load_address, &loaded);
    const char *preloaded = getenv("LD_PRELOAD");
    if (preloaded && *preloaded)
        return "";
    uintptr_t call = (uintptr_t)&__executable_start + pc - 1 - loaded;  // the call, not what follows it
    std::string command = emu_format("addr2line -e /proc/%d/exe %#zx 2>/dev/null", (int)getpid(), (size_t)call);
    FILE *pipe = popen(command.c_str(), "re");
    if (!pipe)
        return "";
    char line[1024] = "";
    bool read = fgets(line, sizeof line, pipe) != NULL;
    pclose(pipe);
    char *colon = strrchr(line, ':');
    if (!read || !colon || atoi(colon + 1) <= 0)
        return "";
    *colon = '\0';
    return emu_place_text(emu_place{line, atoi(colon + 1)});
}

std::string emu_pc_text(emu_pc pc)
{
    static std::unordered_map<emu_pc, std::string> known;
    if (!pc)
        return "";
    auto found = known.find(pc);
    if (found == known.end())
        found = known.emplace(pc, report_find_line(pc)).first;
    return found->second;
}

std::string emu_pc_suffix(emu_pc pc)
{
    std::string text = emu_pc_text(pc);
    return text.empty() ? text : " at " + text;
}

// ---- errors --------------------------------------------------------------------------------------------------------

void emu_fail(const std::string &sentence)
{
    if (failed.exchange(true))
        return;
    first = sentence;
    if (!handler) {
        fprintf(stderr, "CUDA emulator: %s\n", first.c_str());
        abort();
    }
    handler(first.c_str(), handler_argument);
}

bool emu_failed()
{
    return failed;
}

void emu_report_reset()
{
    failed = false;
    first.clear();
}

void emu_on_error(void (*wanted)(const char *, void *), void *argument)
{
    handler = wanted;
    handler_argument = argument;
}

const char *emu_error(void)
{
    return failed ? first.c_str() : NULL;
}
