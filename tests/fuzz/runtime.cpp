// Reads what a fuzzer sends on standard input, each in a block of its own size, as libraries read it.
//
// In: a letter for the reader, two numbers of 8 bytes (size, and zeros behind that), the bytes.
// Out: a number of 4 bytes, then a text: "+" where it is taken, else "-" and the refusal.
#include "runtime/lazy/files.h"
#include "runtime/lazy/index.h"
#include "runtime/lazy/ownership.h"
#include "runtime/lazy/pack.h"
#include "runtime/lazy/text.h"

#include <algorithm>
#include <cstdlib>
#include <iostream>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <fcntl.h>
#include <unistd.h>

namespace {

using namespace qola_runtime;

/// A property that does not hold: not an exception, which would be a refusal.
void hold(bool property, const char* what)
{
    if(property)
        return;
    say(what);
    std::abort();
}

/// A kernel's key, a line's end, and the entry.
void read_entry(std::string_view data)
{
    const std::size_t end = std::min(data.find('\n'), data.size());
    const std::string fault =
        fault_of_entry(data.substr(std::min(end + 1, data.size())), data.substr(0, end));
    if(!fault.empty())
        throw Problem("the entry " + fault);
}

void read_index_of(std::string_view data)
{
    const Index index = index_of(data, "kernels.index");
    faults_of_directory("root", index, trust_in_user());
    faults_of_files("root", index);
    for(std::size_t at = 0; at < index.kernels.size() && at < 2; ++at)
    {
        const std::string path = "/" + entry_path(compiled_by("identity", index.kernels[at]));
        hold(path.find("/../") == std::string::npos && path.find("//") == std::string::npos,
             "a kernel leads out of the cache");
        const TemporaryDirectory copy("copy");
        make_directories(copy.path, 0700);
        copy_sources("root", index, index.kernels[at], copy.path);
    }
}

void read_pack(std::string_view data, std::uint64_t zeros)
{
    const Fd file = open_file("a.qpack", O_WRONLY | O_CREAT | O_TRUNC);
    write_all(file.get(), data, "a.qpack");
    hold(ftruncate(file.get(), static_cast<off_t>(data.size() + zeros)) == 0, "no space");
    const Pack pack("a.qpack");
    std::vector<Item> items;
    for(const auto& [key, place] : pack.places())
    {
        pack.of_another_compiler({place.name, place.arch, std::string(64, 'a')});
        const std::string bytes = pack.find(key);
        hold(fault_of_entry(bytes, key).empty(), "a pack gives what is no entry");
        items.push_back({{place.name, place.arch, key, place.identity}, bytes.size(), [bytes] {
                             return bytes;
                         }});
    }
    write_pack_file("copy.qpack", items);
    const Pack copy("copy.qpack");
    hold(copy.places().size() == items.size(), "a copy has other entries");
    for(const Item& item : items)
        hold(copy.find(item.kernel.key) == item.read(), "a copy has another entry");
}

/// A block of just this size: what is read behind it is seen.
std::unique_ptr<char[]> block(std::uint64_t size)
{
    auto bytes = std::make_unique<char[]>(size);
    hold(bool(std::cin.read(bytes.get(), static_cast<std::streamsize>(size))), "too little was sent");
    return bytes;
}

} // namespace

int main()
{
    for(char reader; std::cin.get(reader);)
    {
        const auto head           = block(16);
        const std::uint64_t size  = number_at({head.get(), 16}, 0, 8);
        const auto bytes          = block(size);
        const std::string_view in = {bytes.get(), size};
        std::string answer        = "+";
        try
        {
            if(reader == 'e')
                read_entry(in);
            else if(reader == 'i')
                read_index_of(in);
            else
                read_pack(in, number_at({head.get(), 16}, 8, 8));
        }
        catch(const Problem& problem)
        {
            answer = "-" + visible(problem.what());
        }
        std::cout << number_bytes(answer.size(), 4) << answer << std::flush;
    }
}
