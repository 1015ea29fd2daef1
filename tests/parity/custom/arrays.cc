// CUDA arrays, mipmapped arrays, texture and surface objects, and copies of one dimension.
#include <cstring>

#include "tests/parity/custom/array_box.h"

namespace gpurun::parity {
namespace {

constexpr char kBoxes[] = "asynchronous copies of boxes, in the call's stream";

CUDA_ARRAY3D_DESCRIPTOR drawn_array(Trial& t) {
  CUDA_ARRAY3D_DESCRIPTOR what{};
  what.Width = t.draw(1, 60), what.Height = t.draw(1, 60), what.Depth = t.draw(0, 8);
  what.Format = t.one_of({CU_AD_FORMAT_UNSIGNED_INT8, CU_AD_FORMAT_HALF, CU_AD_FORMAT_FLOAT});
  what.NumChannels = static_cast<unsigned>(t.one_of({1, 2, 4}));
  what.Flags = t.one_of({0u, unsigned{CUDA_ARRAY3D_LAYERED}, unsigned{CUDA_ARRAY3D_SURFACE_LDST}});
  return what;
}

Both<CUmipmappedArray> new_mipmapped(Trial& t) {
  (void)t.context();
  const CUDA_ARRAY3D_DESCRIPTOR what = drawn_array(t);
  Both<CUmipmappedArray> array;
  t.bind(array, t.client(FN(cuMipmappedArrayCreate), &array.client, &what, 4u),
         "cuMipmappedArrayCreate", "pHandle");
  return array;
}

void end_later(Trial& t, const Both<CUmipmappedArray>& array) {
  t.at_end([&t, array] { (void)t.call_client(FN(cuMipmappedArrayDestroy), array); });
}

void add_creations(TrialTable& table) {
  table.add("cuArrayCreate_v2", [](Trial& t) {
    CUDA_ARRAY_DESCRIPTOR what{};
    what.Width = t.draw(1, 60), what.Height = t.draw(0, 60);
    what.Format = CU_AD_FORMAT_SIGNED_INT16;
    what.NumChannels = 2;
    Both<CUarray> array;
    t.bind(array, t.same(FN(cuArrayCreate_v2), out(array), &what), "cuArrayCreate_v2", "pHandle");
    t.same(FN(cuArrayDestroy), array);
  });
  table.add("cuArray3DCreate_v2", [](Trial& t) {
    const CUDA_ARRAY3D_DESCRIPTOR what = drawn_array(t);
    Both<CUarray> array;
    t.bind(array, t.same(FN(cuArray3DCreate_v2), out(array), &what), "cuArray3DCreate_v2",
           "pHandle");
    t.same(FN(cuArrayDestroy), array);
  });
  table.add("cuArrayDestroy", [](Trial& t) {
    const CUDA_ARRAY3D_DESCRIPTOR what = drawn_array(t);
    Both<CUarray> array;
    t.bind(array, t.client(FN(cuArray3DCreate_v2), &array.client, &what), "cuArray3DCreate_v2",
           "pHandle");
    t.same(FN(cuArrayDestroy), array);
    t.expect_local(t.client(FN(cuArrayDestroy), array), CUDA_ERROR_INVALID_HANDLE);
  });
  table.add("cuMipmappedArrayCreate", [](Trial& t) {
    const CUDA_ARRAY3D_DESCRIPTOR what = drawn_array(t);
    Both<CUmipmappedArray> array;
    t.bind(array, t.same(FN(cuMipmappedArrayCreate), out(array), &what, 3u),
           "cuMipmappedArrayCreate", "pHandle");
    end_later(t, array);
  });
  table.add("cuMipmappedArrayDestroy", [](Trial& t) {
    const Both<CUmipmappedArray> array = new_mipmapped(t);
    Both<CUarray> level;
    t.same(FN(cuMipmappedArrayGetLevel), out(level), array, 1u);
    t.same(FN(cuMipmappedArrayDestroy), array);
    // Parts end with their array.
    CUDA_ARRAY3D_DESCRIPTOR what{};
    t.expect_local(t.client(FN(cuArray3DGetDescriptor_v2), &what, level),
                   CUDA_ERROR_INVALID_HANDLE);
  });
}

template <typename Descriptor, typename Function>
void add_question(TrialTable& table, Function function) {
  table.translated(function.name, "the client keeps the answer", [function](Trial& t) {
    const Both<CUarray> array = new_array(t, 4 * t.draw(1, 40), t.draw(1, 9), t.draw(0, 5));
    Both<Descriptor> what{};
    t.same(function, out(what), array);
    t.expect_equal(what);
    what.client = Descriptor{};
    t.expect_local(t.client(function, out(what), array), CUDA_SUCCESS);
    t.expect_equal(what);
  });
}

void add_questions(TrialTable& table) {
  add_question<CUDA_ARRAY_DESCRIPTOR>(table, FN(cuArrayGetDescriptor_v2));
  add_question<CUDA_ARRAY3D_DESCRIPTOR>(table, FN(cuArray3DGetDescriptor_v2));
  table.translated("cuMipmappedArrayGetLevel", "once for each level", [](Trial& t) {
    const Both<CUmipmappedArray> array = new_mipmapped(t);
    end_later(t, array);
    Both<CUarray> level, again;
    const unsigned number = static_cast<unsigned>(t.draw(0, 3));
    t.same(FN(cuMipmappedArrayGetLevel), out(level), array, number);
    t.expect_local(t.client(FN(cuMipmappedArrayGetLevel), &again.client, array, number),
                   CUDA_SUCCESS);
    EXPECT_EQ(level.client, again.client);
  });
}

// The description of an object, with either side's handles and addresses.
Both<CUDA_RESOURCE_DESC> drawn_resource(Trial& t) {
  Both<CUDA_RESOURCE_DESC> what;
  const auto both = [&](auto set) { set(what.client), set(what.driver); };
  both([](auto& each) { std::memset(&each, 0, sizeof each); });  // Padding is compared, too.
  switch (t.draw(0, 3)) {
    case 0: {
      const Both<CUarray> array = new_array(t, 64, 8, 0);
      both([](auto& each) { each.resType = CU_RESOURCE_TYPE_ARRAY; });
      what.client.res.array.hArray = array.client;
      what.driver.res.array.hArray = array.driver;
      break;
    }
    case 1: {
      const Both<CUmipmappedArray> array = new_mipmapped(t);
      end_later(t, array);
      both([](auto& each) { each.resType = CU_RESOURCE_TYPE_MIPMAPPED_ARRAY; });
      what.client.res.mipmap.hMipmappedArray = array.client;
      what.driver.res.mipmap.hMipmappedArray = array.driver;
      break;
    }
    case 2: {
      const CUdeviceptr memory = t.memory(4096);
      both([&](auto& each) {
        each.resType = CU_RESOURCE_TYPE_LINEAR;
        each.res.linear.devPtr = memory;
        each.res.linear.format = CU_AD_FORMAT_FLOAT;
        each.res.linear.numChannels = 1;
        each.res.linear.sizeInBytes = 4096;
      });
      break;
    }
    default: {
      const CUdeviceptr memory = t.memory(4096);
      both([&](auto& each) {
        each.resType = CU_RESOURCE_TYPE_PITCH2D;
        each.res.pitch2D.devPtr = memory;
        each.res.pitch2D.format = CU_AD_FORMAT_FLOAT;
        each.res.pitch2D.numChannels = 1;
        each.res.pitch2D.width = 16, each.res.pitch2D.height = 32;
        each.res.pitch2D.pitchInBytes = 128;
      });
    }
  }
  return what;
}

struct Descriptions {
  CUDA_TEXTURE_DESC texture{};
  CUDA_RESOURCE_VIEW_DESC view{};
  const CUDA_RESOURCE_VIEW_DESC* given_view = nullptr;

  explicit Descriptions(Trial& t) {
    texture.addressMode[0] = t.one_of({CU_TR_ADDRESS_MODE_WRAP, CU_TR_ADDRESS_MODE_BORDER});
    texture.addressMode[1] = CU_TR_ADDRESS_MODE_MIRROR;
    texture.filterMode = CU_TR_FILTER_MODE_LINEAR;
    texture.flags = CU_TRSF_NORMALIZED_COORDINATES;
    texture.maxAnisotropy = static_cast<unsigned>(t.draw(0, 16));
    texture.borderColor[2] = 0.5f;
    view.format = CU_RES_VIEW_FORMAT_FLOAT_1X32;
    view.width = t.draw(1, 99), view.lastLayer = 7;
    if (t.draw(0, 1) == 0) given_view = &view;
  }
};

// The client passes on the driver's own value.
template <typename Object, typename Create>
Both<Object> created(Trial& t, const char* row, const char* parameter, Create create) {
  Both<Object> object{}, direct{};
  const Both<CUDA_RESOURCE_DESC> resource = drawn_resource(t);
  const Seen by_client = t.client_call([&] { return create(true, &object.client, resource); });
  t.expect_same(by_client, t.direct_call([&] { return create(false, &direct.driver, resource); }));
  t.bind(object, by_client, row, parameter);
  t.expect_equal(object);
  return object;
}

Both<CUtexObject> new_texture(Trial& t) {
  const Descriptions of(t);
  return created<CUtexObject>(
      t, "cuTexObjectCreate", "pTexObject",
      [&](bool client, CUtexObject* object, const Both<CUDA_RESOURCE_DESC>& resource) {
        return client ? t.call_client(FN(cuTexObjectCreate), object, &resource.client, &of.texture,
                                      of.given_view)
                      : t.call_direct(FN(cuTexObjectCreate), object, &resource.driver, &of.texture,
                                      of.given_view);
      });
}

Both<CUsurfObject> new_surface(Trial& t) {
  return created<CUsurfObject>(
      t, "cuSurfObjectCreate", "pSurfObject",
      [&](bool client, CUsurfObject* object, const Both<CUDA_RESOURCE_DESC>& resource) {
        return client ? t.call_client(FN(cuSurfObjectCreate), object, &resource.client)
                      : t.call_direct(FN(cuSurfObjectCreate), object, &resource.driver);
      });
}

// This device fills every description with a pattern, in which no resource is an array.
template <typename Description, typename Function, typename Object>
void compare_description(Trial& t, Function function, const Both<Object>& object) {
  Both<Description> what{};
  t.same(function, out(what), object);
  t.expect_equal(what);
}

void add_objects(TrialTable& table) {
  table.add("cuTexObjectCreate", [](Trial& t) { t.same(FN(cuTexObjectDestroy), new_texture(t)); });
  table.add("cuTexObjectDestroy", [](Trial& t) {
    const Both<CUtexObject> texture = new_texture(t);
    t.same(FN(cuTexObjectDestroy), texture);
    // A second destroy does not reach the driver.
    t.expect_local(t.client(FN(cuTexObjectDestroy), texture), CUDA_ERROR_INVALID_VALUE);
  });
  table.add("cuTexObjectGetResourceDesc", [](Trial& t) {
    compare_description<CUDA_RESOURCE_DESC>(t, FN(cuTexObjectGetResourceDesc), new_texture(t));
  });
  table.add("cuTexObjectGetTextureDesc", [](Trial& t) {
    compare_description<CUDA_TEXTURE_DESC>(t, FN(cuTexObjectGetTextureDesc), new_texture(t));
  });
  table.add("cuTexObjectGetResourceViewDesc", [](Trial& t) {
    compare_description<CUDA_RESOURCE_VIEW_DESC>(t, FN(cuTexObjectGetResourceViewDesc),
                                                 new_texture(t));
  });
  table.add("cuSurfObjectCreate",
            [](Trial& t) { t.same(FN(cuSurfObjectDestroy), new_surface(t)); });
  table.add("cuSurfObjectDestroy", [](Trial& t) {
    const Both<CUsurfObject> surface = new_surface(t);
    t.same(FN(cuSurfObjectDestroy), surface);
    t.expect_local(t.client(FN(cuSurfObjectDestroy), surface), CUDA_ERROR_INVALID_VALUE);
  });
  table.add("cuSurfObjectGetResourceDesc", [](Trial& t) {
    compare_description<CUDA_RESOURCE_DESC>(t, FN(cuSurfObjectGetResourceDesc), new_surface(t));
  });
}

void add_lines(TrialTable& table) {
  table.translated("cuMemcpyHtoA_v2", kBoxes, [](Trial& t) {
    const ArrayCopy copy(t, In::kArray, In::kHost, true, 1);
    compare(t, copy, t.default_stream(), [&] {
      return t.call_client(FN(cuMemcpyHtoA_v2), copy.to.array, copy.to.x, copy.from.base,
                           copy.width);
    });
  });
  table.translated("cuMemcpyHtoAAsync_v2", kBoxes, [](Trial& t) {
    const ArrayCopy copy(t, In::kArray, In::kHost, true, 1);
    const Both<CUstream> stream = t.stream();
    compare(t, copy, stream, [&] {
      return t.call_client(FN(cuMemcpyHtoAAsync_v2), copy.to.array, copy.to.x, copy.from.base,
                           copy.width, stream);
    });
  });
  table.translated("cuMemcpyAtoH_v2", kBoxes, [](Trial& t) {
    const ArrayCopy copy(t, In::kHost, In::kArray, true, 1);
    compare(t, copy, t.default_stream(), [&] {
      return t.call_client(FN(cuMemcpyAtoH_v2), copy.to.base, copy.from.array, copy.from.x,
                           copy.width);
    });
  });
  table.translated("cuMemcpyAtoHAsync_v2", kBoxes, [](Trial& t) {
    const ArrayCopy copy(t, In::kHost, In::kArray, true, 1);
    const Both<CUstream> stream = t.stream();
    compare(t, copy, stream, [&] {
      return t.call_client(FN(cuMemcpyAtoHAsync_v2), copy.to.base, copy.from.array, copy.from.x,
                           copy.width, stream);
    });
  });
  table.translated("cuMemcpyAtoD_v2", kBoxes, [](Trial& t) {
    const ArrayCopy copy(t, In::kDevice, In::kArray, true, 1);
    compare(t, copy, t.default_stream(), [&] {
      return t.call_client(FN(cuMemcpyAtoD_v2), reinterpret_cast<CUdeviceptr>(copy.to.base),
                           copy.from.array, copy.from.x, copy.width);
    });
  });
  table.translated("cuMemcpyDtoA_v2", kBoxes, [](Trial& t) {
    const ArrayCopy copy(t, In::kArray, In::kDevice, true, 1);
    compare(t, copy, t.default_stream(), [&] {
      return t.call_client(FN(cuMemcpyDtoA_v2), copy.to.array, copy.to.x,
                           reinterpret_cast<CUdeviceptr>(copy.from.base), copy.width);
    });
  });
  table.translated("cuMemcpyAtoA_v2", kBoxes, [](Trial& t) {
    const ArrayCopy copy(t, In::kArray, In::kArray, true, 1);
    compare(t, copy, t.default_stream(), [&] {
      return t.call_client(FN(cuMemcpyAtoA_v2), copy.to.array, copy.to.x, copy.from.array,
                           copy.from.x, copy.width);
    });
  });
}

}  // namespace

void add_array_trials(TrialTable& table) {
  add_creations(table);
  add_questions(table);
  add_objects(table);
  add_lines(table);
}

}  // namespace gpurun::parity
