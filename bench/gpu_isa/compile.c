// Compiles one SPIR-V shader with the first Vulkan device, and prints what the driver says about the pipeline: a line
// `NAME: NUMBER` for each statistic, a line `ISA`, and the instructions. The device needs no card: RADV compiles for a
// family that RADV_FORCE_FAMILY names.
//
// compile FILE READS WRITES: binding 0 is a uniform buffer, and READS + WRITES storage buffers follow.

#include <stdio.h>
#include <stdlib.h>
#include <vulkan/vulkan.h>

#define MOST 64

static void check(VkResult result, const char *what) {
    if (result == VK_SUCCESS) return;
    fprintf(stderr, "compile: %s failed with %d; RADV of Mesa 22.3 or newer is needed\n", what, result);
    exit(1);
}

static uint32_t *read_words(const char *path, size_t *bytes) {
    FILE *file = fopen(path, "rb");
    if (!file || fseek(file, 0, SEEK_END)) { perror(path); exit(1); }
    *bytes = (size_t)ftell(file);
    rewind(file);
    uint32_t *words = malloc(*bytes);
    if (!words || fread(words, 1, *bytes, file) != *bytes) { perror(path); exit(1); }
    fclose(file);
    return words;
}

static VkPhysicalDevice first_device(void) {
    VkApplicationInfo application = {.sType = VK_STRUCTURE_TYPE_APPLICATION_INFO, .apiVersion = VK_API_VERSION_1_2};
    VkInstanceCreateInfo info = {.sType = VK_STRUCTURE_TYPE_INSTANCE_CREATE_INFO, .pApplicationInfo = &application};
    VkInstance instance;
    check(vkCreateInstance(&info, NULL, &instance), "vkCreateInstance");
    uint32_t count = 1;
    VkPhysicalDevice device = VK_NULL_HANDLE;
    VkResult result = vkEnumeratePhysicalDevices(instance, &count, &device);
    check(result == VK_INCOMPLETE ? VK_SUCCESS : result, "vkEnumeratePhysicalDevices");
    if (count == 0) { fprintf(stderr, "compile: no Vulkan device; set VK_ICD_FILENAMES and RADV_FORCE_FAMILY\n"); exit(1); }
    return device;
}

// The features that wgpu asks for: buffers are checked by the device.
static VkDevice open_device(VkPhysicalDevice physical) {
    VkPhysicalDevicePipelineExecutablePropertiesFeaturesKHR executables = {
        .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_PIPELINE_EXECUTABLE_PROPERTIES_FEATURES_KHR,
        .pipelineExecutableInfo = VK_TRUE,
    };
    VkPhysicalDeviceRobustness2FeaturesEXT robust = {
        .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_ROBUSTNESS_2_FEATURES_EXT,
        .pNext = &executables,
        .robustBufferAccess2 = VK_TRUE,
    };
    VkPhysicalDeviceFeatures2 features = {
        .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_FEATURES_2,
        .pNext = &robust,
        .features.robustBufferAccess = VK_TRUE,
    };
    const char *extensions[] = {
        VK_KHR_PIPELINE_EXECUTABLE_PROPERTIES_EXTENSION_NAME, VK_EXT_ROBUSTNESS_2_EXTENSION_NAME};
    float priority = 1;
    VkDeviceQueueCreateInfo queue = {
        .sType = VK_STRUCTURE_TYPE_DEVICE_QUEUE_CREATE_INFO, .queueCount = 1, .pQueuePriorities = &priority};
    VkDeviceCreateInfo info = {
        .sType = VK_STRUCTURE_TYPE_DEVICE_CREATE_INFO,
        .pNext = &features,
        .queueCreateInfoCount = 1,
        .pQueueCreateInfos = &queue,
        .enabledExtensionCount = 2,
        .ppEnabledExtensionNames = extensions,
    };
    VkDevice device;
    check(vkCreateDevice(physical, &info, NULL, &device), "vkCreateDevice");
    return device;
}

static VkPipelineLayout layout_of(VkDevice device, uint32_t buffers) {
    VkDescriptorSetLayoutBinding bindings[MOST] = {0};
    for (uint32_t at = 0; at < buffers; at++) {
        VkDescriptorType kind = at == 0 ? VK_DESCRIPTOR_TYPE_UNIFORM_BUFFER : VK_DESCRIPTOR_TYPE_STORAGE_BUFFER;
        bindings[at] = (VkDescriptorSetLayoutBinding){
            .binding = at, .descriptorType = kind, .descriptorCount = 1, .stageFlags = VK_SHADER_STAGE_COMPUTE_BIT};
    }
    VkDescriptorSetLayoutCreateInfo set = {
        .sType = VK_STRUCTURE_TYPE_DESCRIPTOR_SET_LAYOUT_CREATE_INFO, .bindingCount = buffers, .pBindings = bindings};
    VkDescriptorSetLayout sets;
    check(vkCreateDescriptorSetLayout(device, &set, NULL, &sets), "vkCreateDescriptorSetLayout");
    VkPipelineLayoutCreateInfo info = {
        .sType = VK_STRUCTURE_TYPE_PIPELINE_LAYOUT_CREATE_INFO, .setLayoutCount = 1, .pSetLayouts = &sets};
    VkPipelineLayout layout;
    check(vkCreatePipelineLayout(device, &info, NULL, &layout), "vkCreatePipelineLayout");
    return layout;
}

static VkPipeline pipeline_of(VkDevice device, const char *path, uint32_t buffers) {
    size_t bytes;
    uint32_t *words = read_words(path, &bytes);
    VkShaderModuleCreateInfo code = {
        .sType = VK_STRUCTURE_TYPE_SHADER_MODULE_CREATE_INFO, .codeSize = bytes, .pCode = words};
    VkShaderModule module;
    check(vkCreateShaderModule(device, &code, NULL, &module), "vkCreateShaderModule");
    VkComputePipelineCreateInfo info = {
        .sType = VK_STRUCTURE_TYPE_COMPUTE_PIPELINE_CREATE_INFO,
        .flags = VK_PIPELINE_CREATE_CAPTURE_STATISTICS_BIT_KHR
            | VK_PIPELINE_CREATE_CAPTURE_INTERNAL_REPRESENTATIONS_BIT_KHR,
        .stage = {
            .sType = VK_STRUCTURE_TYPE_PIPELINE_SHADER_STAGE_CREATE_INFO,
            .stage = VK_SHADER_STAGE_COMPUTE_BIT,
            .module = module,
            .pName = "main",
        },
        .layout = layout_of(device, buffers),
    };
    VkPipeline pipeline;
    check(vkCreateComputePipelines(device, VK_NULL_HANDLE, 1, &info, NULL, &pipeline), "vkCreateComputePipelines");
    return pipeline;
}

static void print_statistics(VkDevice device, const VkPipelineExecutableInfoKHR *of) {
    PFN_vkGetPipelineExecutableStatisticsKHR get = (PFN_vkGetPipelineExecutableStatisticsKHR)vkGetDeviceProcAddr(
        device, "vkGetPipelineExecutableStatisticsKHR");
    VkPipelineExecutableStatisticKHR all[MOST] = {0};
    for (int at = 0; at < MOST; at++) all[at].sType = VK_STRUCTURE_TYPE_PIPELINE_EXECUTABLE_STATISTIC_KHR;
    uint32_t count = MOST;
    check(get(device, of, &count, all), "vkGetPipelineExecutableStatisticsKHR");
    for (uint32_t at = 0; at < count; at++)
        if (all[at].format == VK_PIPELINE_EXECUTABLE_STATISTIC_FORMAT_UINT64_KHR)
            printf("%s: %llu\n", all[at].name, (unsigned long long)all[at].value.u64);
}

// The last representation is the one that the device runs.
static void print_instructions(VkDevice device, const VkPipelineExecutableInfoKHR *of) {
    PFN_vkGetPipelineExecutableInternalRepresentationsKHR get =
        (PFN_vkGetPipelineExecutableInternalRepresentationsKHR)vkGetDeviceProcAddr(
            device, "vkGetPipelineExecutableInternalRepresentationsKHR");
    VkPipelineExecutableInternalRepresentationKHR all[MOST] = {0};
    for (int at = 0; at < MOST; at++)
        all[at].sType = VK_STRUCTURE_TYPE_PIPELINE_EXECUTABLE_INTERNAL_REPRESENTATION_KHR;
    uint32_t count = MOST;
    check(get(device, of, &count, all), "vkGetPipelineExecutableInternalRepresentationsKHR");
    if (count == 0) { fprintf(stderr, "compile: the driver shows no instructions\n"); exit(1); }
    for (uint32_t at = 0; at < count; at++) all[at].pData = calloc(1, all[at].dataSize + 1);
    check(get(device, of, &count, all), "vkGetPipelineExecutableInternalRepresentationsKHR");
    printf("ISA\n%s\n", (const char *)all[count - 1].pData);
}

int main(int count, char **arguments) {
    int buffers = count == 4 ? 1 + atoi(arguments[2]) + atoi(arguments[3]) : 0;
    if (buffers < 1 || buffers > MOST) { fprintf(stderr, "usage: compile FILE READS WRITES\n"); return 2; }
    VkDevice device = open_device(first_device());
    VkPipelineExecutableInfoKHR executable = {
        .sType = VK_STRUCTURE_TYPE_PIPELINE_EXECUTABLE_INFO_KHR,
        .pipeline = pipeline_of(device, arguments[1], (uint32_t)buffers),
    };
    print_statistics(device, &executable);
    print_instructions(device, &executable);
    return 0;
}
